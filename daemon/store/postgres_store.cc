#include "daemon/store/postgres_store.h"

#include <iterator>
#include <random>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "daemon/base/clock.h"
#include "daemon/store/postgres_schema.h"
#include "daemon/store/postgres_store_impl.h"
#include "daemon/store/rows.h"
#include "spdlog/spdlog.h"

namespace seqpoint {
namespace {

constexpr int64_t kAdvisoryKey = 0x53515054;  // "SQPT"
constexpr int kPostgresVersion = std::size(kPostgresMigrations);
constexpr absl::Duration kIdPause = absl::Seconds(1);

// Each transaction that writes has this lock of the table while it holds the lease's row.
constexpr const char* kEndSessionsThatWrite =
    "SELECT pg_terminate_backend(pid) FROM pg_locks "
    "WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND relation = 'seqpoint.lease'::regclass AND mode = 'RowShareLock' "
    "AND pid <> pg_backend_pid()";

std::string RandomBytes() {
  std::random_device random;
  std::string bytes(16, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

// SQL: by the server's clock, as all that is compared with it.
std::string ExpiresIn(absl::Duration lease) {
  return absl::StrCat("clock_timestamp() + interval '", absl::ToInt64Milliseconds(lease),
                      " milliseconds'");
}

absl::Status MakeTables(const std::string& address, pqxx::work& transaction) {
  transaction.exec0("SET LOCAL client_min_messages = warning");
  transaction.exec0("CREATE SCHEMA IF NOT EXISTS seqpoint");
  transaction.exec0("CREATE TABLE IF NOT EXISTS seqpoint.schema_version (version integer)");
  const pqxx::result found = transaction.exec("SELECT version FROM seqpoint.schema_version");
  const int version = found.empty() ? 0 : found[0][0].as<int>();
  if (version > kPostgresVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "store ", address, " has schema version ", version, ", this program knows ",
        kPostgresVersion,
        "; use the newer seqpointd that wrote it, or choose another database with --store"));
  }
  if (version == kPostgresVersion) return absl::OkStatus();
  for (int from = version; from < kPostgresVersion; ++from) {
    transaction.exec0(kPostgresMigrations[from]);
  }
  if (version == 0) {
    transaction.exec0(
        absl::StrCat("INSERT INTO seqpoint.node VALUES (1, ", SqlBytes(RandomBytes()), ", 0)"));
  }
  transaction.exec0("DELETE FROM seqpoint.schema_version");
  transaction.exec0(
      absl::StrCat("INSERT INTO seqpoint.schema_version VALUES (", kPostgresVersion, ")"));
  return absl::OkStatus();
}

}  // namespace

PostgresStore::Impl::Impl(const std::string& address, const std::string& parameters,
                          const StoreOptions& options)
    : writer_(address, parameters, [this](pqxx::connection& c) { return OnConnect(c); }),
      reader_(address, parameters, [this](pqxx::connection& c) { return CheckReader(c); }),
      holder_(options.holder.empty() ? absl::BytesToHexString(RandomBytes()) : options.holder),
      lease_(options.lease),
      patience_(options.lease),
      renewals_(address, parameters, [](pqxx::connection&) { return absl::OkStatus(); }),
      keeper_([this] { KeepLease(); }),
      watch_([this] { BreakWithoutAnswer(); }) {}

PostgresStore::Impl::~Impl() {
  int64_t fence;
  {
    absl::MutexLock lock(&lease_mutex_);
    ending_ = true;
    fence = lost_.empty() ? fence_ : 0;
    lease_changed_.NotifyAll();
  }
  keeper_.join();
  if (fence != 0) {
    // Where that fails the lease runs out.
    renewals_
        .Run([&](pqxx::connection& connection) {
          pqxx::work transaction(connection);
          transaction.exec0(absl::StrCat(
              "UPDATE seqpoint.lease_time SET expires = '-infinity' WHERE fence = ", fence));
          transaction.commit();
          return absl::OkStatus();
        })
        .IgnoreError();
  }
  {
    absl::MutexLock lock(&lease_mutex_);
    given_up_ = true;
    lease_changed_.NotifyAll();
  }
  watch_.join();
}

absl::Status PostgresStore::Impl::OnConnect(pqxx::connection& connection) {
  if (tables_made_) return absl::OkStatus();
  pqxx::work transaction(connection);
  // One daemon at a time.
  transaction.exec(absl::StrCat("SELECT pg_advisory_xact_lock(", kAdvisoryKey, ")"));
  SEQPOINT_RETURN_IF_ERROR(MakeTables(writer_.address(), transaction));
  transaction.commit();
  tables_made_ = true;
  return absl::OkStatus();
}

absl::Status PostgresStore::Impl::CheckReader(pqxx::connection& connection) {
  pqxx::nontransaction transaction(connection);
  const auto fence = transaction.exec1("SELECT fence FROM seqpoint.lease")[0].as<int64_t>();
  absl::MutexLock lock(&lease_mutex_);
  if (fence >= fence_) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("store ", reader_.address(), ": the server that answered has lease ", fence,
                   ", and this hub has lease ", fence_,
                   ": it was replaced as the primary and does not know it yet; it is tried again"));
}

absl::Status PostgresStore::Impl::Transact(absl::FunctionRef<absl::Status(pqxx::work&)> body) {
  absl::MutexLock guard(&writer_mutex_);
  // A connection that broke while it was idle is made again. All that is written has a key:
  // written twice, it is there once.
  return writer_.RunTwice([&](pqxx::connection& connection) -> absl::Status {
    pqxx::work transaction(connection);
    SEQPOINT_RETURN_IF_ERROR(CheckLease(transaction));
    SEQPOINT_RETURN_IF_ERROR(body(transaction));
    transaction.commit();
    return absl::OkStatus();
  });
}

// ------------------------------------------------------------------------------------- the lease

absl::Status PostgresStore::Impl::CheckLease(pqxx::work& transaction) {
  const auto fence =
      transaction.exec1("SELECT fence FROM seqpoint.lease FOR UPDATE")[0].as<int64_t>();
  {
    absl::MutexLock lock(&lease_mutex_);
    if (fence_ != 0 && fence == fence_) return absl::OkStatus();
  }
  return Lost(transaction);
}

absl::Status PostgresStore::Impl::Lost(pqxx::transaction_base& transaction) {
  const pqxx::row row = transaction.exec1("SELECT fence, holder FROM seqpoint.lease");
  absl::MutexLock lock(&lease_mutex_);
  if (lost_.empty()) {
    lost_ = absl::StrCat(
        "store ", writer_.address(), " is written by ", BytesOf(row[1]), " (lease ",
        row[0].as<int64_t>(), "), which took it over from this seqpointd (lease ", fence_,
        "); what this one has not stored, it does not store any more: restart it, or give hubs "
        "that share a store --peer-address");
  }
  return absl::AlreadyExistsError(lost_);
}

absl::StatusOr<StoreLease> PostgresStore::Impl::TakeLease() {
  StoreLease lease;
  {
    absl::MutexLock lock(&lease_mutex_);
    // Rows that were read under a lease that was lost are too old to write with.
    if (!lost_.empty()) return absl::AlreadyExistsError(lost_);
    if (fence_ != 0) return StoreLease{.ours = true, .holder = holder_};
  }
  {
    // What it is connected to may be a server that was replaced.
    absl::MutexLock guard(&reader_mutex_);
    reader_.Disconnect();
  }
  absl::MutexLock guard(&writer_mutex_);
  SEQPOINT_RETURN_IF_ERROR(writer_.RunTwice([&](pqxx::connection& connection) -> absl::Status {
    pqxx::work transaction(connection);
    const std::string look = absl::StrCat(
        "SELECT lease.fence, holder, expires <= clock_timestamp() OR holder = ", SqlBytes(holder_),
        " FROM seqpoint.lease JOIN seqpoint.lease_time USING (one)");
    const pqxx::row seen = transaction.exec1(look);
    lease.holder = BytesOf(seen[1]);
    if (!seen[2].as<bool>()) return absl::OkStatus();
    const pqxx::result rows = transaction.exec(absl::StrCat(look, " FOR UPDATE SKIP LOCKED"));
    if (rows.empty()) {
      // Its last holder is stopped within a transaction, or killed. The server may not know it: a
      // session that waits for the rest of a message is not idle to it.
      transaction.exec(kEndSessionsThatWrite);
      return absl::OkStatus();
    }
    if (!rows[0][2].as<bool>()) return absl::OkStatus();  // it was renewed meanwhile
    const auto fence = rows[0][0].as<int64_t>() + 1;
    const int64_t now_ns = Clock::System().MonotonicNs();
    transaction.exec0(absl::StrCat("UPDATE seqpoint.lease SET fence = ", fence,
                                   ", holder = ", SqlBytes(holder_)));
    transaction.exec0(absl::StrCat("UPDATE seqpoint.lease_time SET fence = ", fence,
                                   ", expires = ", ExpiresIn(lease_)));
    transaction.commit();
    lease = {.ours = true, .holder = holder_};
    absl::MutexLock lock(&lease_mutex_);
    fence_ = fence;
    renewed_ns_ = now_ns;
    return absl::OkStatus();
  }));
  return lease;
}

absl::Status PostgresStore::Impl::RenewLease() {
  int64_t fence;
  {
    absl::MutexLock lock(&lease_mutex_);
    fence = lost_.empty() ? fence_ : 0;
  }
  return renewals_.RunTwice([&](pqxx::connection& connection) -> absl::Status {
    pqxx::work transaction(connection);
    if (fence == 0) {
      transaction.exec("SELECT");
      return absl::OkStatus();
    }
    const int64_t now_ns = Clock::System().MonotonicNs();
    const pqxx::result renewed = transaction.exec(absl::StrCat(
        "UPDATE seqpoint.lease_time SET expires = ", ExpiresIn(lease_), " WHERE fence = ", fence));
    if (renewed.affected_rows() == 0) return Lost(transaction);
    transaction.commit();
    absl::MutexLock lock(&lease_mutex_);
    renewed_ns_ = now_ns;
    return absl::OkStatus();
  });
}

void PostgresStore::Impl::KeepLease() {
  while (true) {
    {
      absl::MutexLock lock(&lease_mutex_);
      const auto over = [this] {
        lease_mutex_.AssertReaderHeld();
        return ending_;
      };
      if (lease_changed_.Await(lease_mutex_, lease_ / 3, over)) return;
    }
    // Where that fails it is tried again: the lease is ours until another takes it.
    const absl::Status status = RenewLease();
    if (absl::IsUnavailable(status)) continue;
    absl::MutexLock lock(&lease_mutex_);
    answered_ns_ = Clock::System().MonotonicNs();
    patience_ = lease_;
  }
}

// A commit of gigabytes may take long, and so may a query: only where the keeper gets no answer
// either is the server taken as one that hangs.
void PostgresStore::Impl::BreakWithoutAnswer() {
  while (true) {
    absl::Duration patience;
    {
      absl::MutexLock lock(&lease_mutex_);
      const auto over = [this] {
        lease_mutex_.AssertReaderHeld();
        return given_up_;
      };
      if (lease_changed_.Await(lease_mutex_, lease_ / 3, over)) return;
      const int64_t since_ns = Clock::System().MonotonicNs() - answered_ns_;
      if (absl::Nanoseconds(since_ns) < patience_) continue;
      patience = patience_;
    }
    bool broken = false;
    for (Postgres* postgres : {&writer_, &reader_, &renewals_}) {
      if (postgres->waiting() < patience) continue;
      postgres->Break();
      broken = true;
    }
    if (!broken) continue;
    absl::MutexLock lock(&lease_mutex_);
    patience_ = 2 * patience;
  }
}

std::string PostgresStore::Impl::LostLease() {
  absl::MutexLock lock(&lease_mutex_);
  if (!lost_.empty()) return lost_;
  const absl::Duration since = absl::Nanoseconds(Clock::System().MonotonicNs() - renewed_ns_);
  if (since <= lease_) return "";
  return absl::StrCat("the lease of store ", writer_.address(), " could not be renewed for ",
                      absl::ToInt64Seconds(since), " s and has run out after ",
                      absl::ToInt64Seconds(lease_), " s: another seqpointd may have it");
}

absl::Status PostgresStore::Impl::Reserve(Ids& ids) {
  absl::MutexLock guard(&writer_mutex_);
  // All daemons take theirs, whoever holds the lease.
  return writer_.RunTwice([&](pqxx::connection& connection) {
    pqxx::work transaction(connection);
    ids.next =
        transaction.exec1(absl::StrCat("SELECT nextval('", ids.sequence, "')"))[0].as<int64_t>();
    transaction.commit();
    ids.end = ids.next + ids.at_once;
    return absl::OkStatus();
  });
}

int64_t PostgresStore::Impl::NewId(Ids& ids) {
  absl::MutexLock guard(&ids_mutex_);
  while (ids.next == ids.end) {
    if (const absl::Status status = Reserve(ids); !status.ok()) {
      spdlog::error("no new ids: {}; it is tried again", std::string(status.message()));
      absl::SleepFor(kIdPause);
    }
  }
  return ids.next++;
}

PostgresStore::PostgresStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PostgresStore::~PostgresStore() = default;

absl::StatusOr<std::unique_ptr<Store>> PostgresStore::Open(const std::string& address,
                                                           const StoreOptions& options) {
  SEQPOINT_ASSIGN_OR_RETURN(const std::string parameters, PostgresParameters(address));
  auto impl = std::make_unique<Impl>(address, parameters, options);
  if (!options.standby) {
    SEQPOINT_ASSIGN_OR_RETURN(const StoreLease lease, impl->TakeLease());
    if (!lease.ours) {
      return absl::AlreadyExistsError(absl::StrCat(
          "store ", address, " is in use by another seqpointd (", lease.holder,
          "); end it, choose another database with --store, or give both --peer-address: hubs "
          "that share a store"));
    }
  }
  {
    absl::MutexLock guard(&impl->ids_mutex_);
    SEQPOINT_RETURN_IF_ERROR(impl->Reserve(impl->job_ids_));
    SEQPOINT_RETURN_IF_ERROR(impl->Reserve(impl->process_ids_));
  }
  return std::unique_ptr<Store>(new PostgresStore(std::move(impl)));
}

absl::StatusOr<StoreLease> PostgresStore::TakeLease() { return impl_->TakeLease(); }
std::string PostgresStore::LostLease() { return impl_->LostLease(); }
int64_t PostgresStore::NewJobId() { return impl_->NewId(impl_->job_ids_); }
int64_t PostgresStore::NewProcessId() { return impl_->NewId(impl_->process_ids_); }
const std::string& PostgresStore::path() const { return impl_->writer_.address(); }
const std::string& PostgresStore::damage() const { return impl_->no_damage_; }

absl::Status PostgresStore::Write(const WriteBatch& batch) {
  SEQPOINT_RETURN_IF_ERROR(CheckRows(batch));
  return impl_->Transact([&](pqxx::work& transaction) {
    impl_->writer_mutex_.AssertHeld();
    return PutRows(batch, transaction, &impl_->damaged_jobs_);
  });
}

std::set<int64_t> PostgresStore::TakeDamagedJobs() {
  absl::MutexLock guard(&impl_->writer_mutex_);
  return std::exchange(impl_->damaged_jobs_, {});
}

absl::Status PostgresStore::BeginJob(int64_t job_id) {
  return impl_->Transact([&](pqxx::work& transaction) {
    transaction.exec0(absl::StrCat("INSERT INTO seqpoint.doomed_job VALUES (", job_id,
                                   ") ON CONFLICT DO NOTHING"));
    return absl::OkStatus();
  });
}

absl::StatusOr<int64_t> PostgresStore::Bytes() {
  SEQPOINT_ASSIGN_OR_RETURN(
      const auto bytes,
      impl_->ReadFirst<int64_t>(
          kUsedBytes, [](const pqxx::row& from, int64_t& to) { to = from[0].as<int64_t>(); }));
  return bytes.value_or(0);
}

}  // namespace seqpoint
