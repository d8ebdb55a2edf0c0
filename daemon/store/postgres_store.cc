#include "daemon/store/postgres_store.h"

#include <iterator>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "daemon/store/postgres_schema.h"
#include "daemon/store/postgres_store_impl.h"
#include "daemon/store/rows.h"
#include "spdlog/spdlog.h"

namespace seqpoint {
namespace {

constexpr int64_t kAdvisoryKey = 0x53515054;  // "SQPT"
constexpr int kPostgresVersion = std::size(kPostgresMigrations);
constexpr absl::Duration kIdPause = absl::Seconds(1);

std::string RandomBytes() {
  std::random_device random;
  std::string bytes(16, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
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
    transaction.exec0(absl::StrCat("INSERT INTO seqpoint.node VALUES (1, ", SqlBytes(RandomBytes()),
                                   ", 0, ''::bytea)"));
  }
  transaction.exec0("DELETE FROM seqpoint.schema_version");
  transaction.exec0(
      absl::StrCat("INSERT INTO seqpoint.schema_version VALUES (", kPostgresVersion, ")"));
  return absl::OkStatus();
}

}  // namespace

PostgresStore::Impl::Impl(const std::string& address, const std::string& parameters)
    : writer_(address, parameters, [this](pqxx::connection& c) { return OnConnect(c); }),
      reader_(address, parameters, [](pqxx::connection&) { return absl::OkStatus(); }),
      owner_(RandomBytes()) {}

absl::Status PostgresStore::Impl::OnConnect(pqxx::connection& connection) {
  const std::string& address = writer_.address();
  pqxx::work transaction(connection);
  // The session holds the lock, which goes with the connection, also when the daemon is killed.
  if (!transaction.exec1(absl::StrCat("SELECT pg_try_advisory_lock(", kAdvisoryKey, ")"))[0]
           .as<bool>()) {
    return absl::AlreadyExistsError(absl::StrCat(
        "store ", address,
        " is in use by another seqpointd; end it, or choose another database with --store"));
  }
  if (owns_) {
    const pqxx::row row = transaction.exec1("SELECT owner FROM seqpoint.node");
    if (BytesOf(row[0]) != owner_) {
      return absl::AlreadyExistsError(absl::StrCat(
          "store ", address,
          " was taken over by another seqpointd while this one had no connection to it; what this "
          "one has not stored cannot be stored any more: restart it"));
    }
    return absl::OkStatus();
  }
  SEQPOINT_RETURN_IF_ERROR(MakeTables(address, transaction));
  transaction.exec0(absl::StrCat("UPDATE seqpoint.node SET owner = ", SqlBytes(owner_)));
  transaction.commit();
  owns_ = true;
  return absl::OkStatus();
}

absl::Status PostgresStore::Impl::Transact(absl::FunctionRef<absl::Status(pqxx::work&)> body) {
  absl::MutexLock guard(&writer_mutex_);
  // A connection that broke while it was idle is made again. All that is written has a key:
  // written twice, it is there once.
  return writer_.RunTwice([&](pqxx::connection& connection) -> absl::Status {
    pqxx::work transaction(connection);
    SEQPOINT_RETURN_IF_ERROR(body(transaction));
    transaction.commit();
    return absl::OkStatus();
  });
}

absl::Status PostgresStore::Impl::Reserve(Ids& ids) {
  return Transact([&](pqxx::work& transaction) {
    ids.next =
        transaction.exec1(absl::StrCat("SELECT nextval('", ids.sequence, "')"))[0].as<int64_t>();
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

absl::StatusOr<std::unique_ptr<Store>> PostgresStore::Open(const std::string& address) {
  SEQPOINT_ASSIGN_OR_RETURN(const std::string parameters, PostgresParameters(address));
  auto impl = std::make_unique<Impl>(address, parameters);
  {
    absl::MutexLock guard(&impl->ids_mutex_);
    SEQPOINT_RETURN_IF_ERROR(impl->Reserve(impl->job_ids_));
    SEQPOINT_RETURN_IF_ERROR(impl->Reserve(impl->process_ids_));
  }
  return std::unique_ptr<Store>(new PostgresStore(std::move(impl)));
}

int64_t PostgresStore::NewJobId() { return impl_->NewId(impl_->job_ids_); }
int64_t PostgresStore::NewProcessId() { return impl_->NewId(impl_->process_ids_); }
const std::string& PostgresStore::path() const { return impl_->writer_.address(); }
const std::string& PostgresStore::damage() const { return impl_->no_damage_; }

absl::Status PostgresStore::Write(const WriteBatch& batch) {
  SEQPOINT_RETURN_IF_ERROR(CheckRows(batch));
  return impl_->Transact([&](pqxx::work& transaction) { return PutRows(batch, transaction); });
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
