#include "daemon/store/postgres.h"

#include <libpq-fe.h>
#include <sys/socket.h>

#include <map>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "daemon/base/clock.h"
#include "daemon/base/status_macros.h"

namespace seqpoint {
namespace {

absl::StatusCode CodeOf(const std::string& sqlstate) {
  if (sqlstate == "53300") return absl::StatusCode::kUnavailable;  // too many connections
  if (absl::StartsWith(sqlstate, "53")) return absl::StatusCode::kResourceExhausted;
  if (absl::StartsWith(sqlstate, "23") || absl::StartsWith(sqlstate, "22")) {
    return absl::StatusCode::kInvalidArgument;
  }
  if (sqlstate == "42501" || absl::StartsWith(sqlstate, "28")) {
    return absl::StatusCode::kPermissionDenied;
  }
  if (sqlstate == "XX001" || sqlstate == "XX002") return absl::StatusCode::kDataLoss;
  // A connection that failed, a server that ends, one that is a standby, a conflict.
  for (const char* start : {"08", "57P", "25006", "40"}) {
    if (absl::StartsWith(sqlstate, start)) return absl::StatusCode::kUnavailable;
  }
  return absl::StatusCode::kInternal;
}

}  // namespace

absl::StatusOr<std::string> PostgresParameters(const std::string& address) {
  char* parse_error = nullptr;
  const std::unique_ptr<PQconninfoOption, decltype(&PQconninfoFree)> options(
      PQconninfoParse(address.c_str(), &parse_error), &PQconninfoFree);
  const std::unique_ptr<char, decltype(&PQfreemem)> error(parse_error, &PQfreemem);
  if (options == nullptr) {
    // libpq's sentence may hold the password: the address may be wrong because of it.
    return absl::InvalidArgumentError(
        "the store's address is not one of PostgreSQL; write it as "
        "postgresql://USER@HOST:PORT/DATABASE or postgresql:///DATABASE?host=/FOLDER");
  }
  // A peer that is gone without a word is noticed after 10 s. Milliseconds are libpq's unit for
  // tcp_user_timeout, seconds for the others.
  std::map<std::string, std::string> parameters = {{"connect_timeout", "5"},
                                                   {"tcp_user_timeout", "10000"},
                                                   {"keepalives_idle", "5"},
                                                   {"keepalives_interval", "2"},
                                                   {"application_name", "seqpointd"}};
  for (const PQconninfoOption* option = options.get(); option->keyword != nullptr; ++option) {
    if (option->val == nullptr) continue;
    if (std::string_view(option->keyword) == "password") {
      return absl::InvalidArgumentError(
          "the store's address has a password in it, which all users of this machine can read; "
          "leave it out and put it into ~/.pgpass, or a file that PGPASSFILE names");
    }
    parameters[option->keyword] = option->val;
  }
  std::string text;
  for (const auto& [keyword, value] : parameters) {
    absl::StrAppend(&text, keyword, "='",
                    absl::StrReplaceAll(value, {{"\\", "\\\\"}, {"'", "\\'"}}), "' ");
  }
  return text;
}

class Postgres::Answer {
 public:
  Answer(Postgres* postgres, const pqxx::connection& connection) : postgres_(*postgres) {
    absl::MutexLock lock(&postgres_.answer_mutex_);
    postgres_.socket_ = connection.sock();
    postgres_.asked_ns_ = Clock::System().MonotonicNs();
    postgres_.broken_ns_ = 0;
  }
  ~Answer() {
    absl::MutexLock lock(&postgres_.answer_mutex_);
    postgres_.socket_ = -1;
  }

 private:
  Postgres& postgres_;
};

absl::Duration Postgres::waiting() const {
  absl::MutexLock lock(&answer_mutex_);
  if (socket_ < 0) return absl::ZeroDuration();
  return absl::Nanoseconds(Clock::System().MonotonicNs() - asked_ns_);
}

void Postgres::Break() {
  absl::MutexLock lock(&answer_mutex_);
  if (socket_ < 0 || broken_ns_ != 0) return;
  broken_ns_ = Clock::System().MonotonicNs() - asked_ns_;
  shutdown(socket_, SHUT_RDWR);
}

absl::Status Postgres::Connect() {
  const absl::Time begin = absl::Now();
  absl::Cleanup failed = [&] { next_attempt_ = absl::Now() + (absl::Now() - begin); };
  auto connection = std::make_unique<pqxx::connection>(parameters_);
  // A new session would be without the lock of this one, and nobody would hear of it.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  connection->inhibit_reactivation(true);
#pragma GCC diagnostic pop
  {
    const Answer answer(this, *connection);
    SEQPOINT_RETURN_IF_ERROR(on_connect_(*connection));
  }
  connection_ = std::move(connection);
  std::move(failed).Cancel();
  return absl::OkStatus();
}

absl::Status Postgres::Failed(absl::StatusCode code, std::string_view message) {
  if (connection_ != nullptr && !connection_->is_open()) code = absl::StatusCode::kUnavailable;
  // A standby does not become the primary on this connection.
  if (code == absl::StatusCode::kUnavailable) connection_.reset();
  std::string text = absl::StrReplaceAll(
      absl::StripSuffix(absl::string_view(message.data(), message.size()), "\n"),
      {{"\n\t", " "}, {"\n", " "}});
  {
    absl::MutexLock lock(&answer_mutex_);
    if (broken_ns_ != 0) {
      code = absl::StatusCode::kUnavailable;
      text = absl::StrCat("the server gave no answer for ", broken_ns_ / 1'000'000'000,
                          " s, and the connection was ended; look whether it is stopped, or its "
                          "disk, or waits for a standby");
      broken_ns_ = 0;
    }
  }
  if (code == absl::StatusCode::kResourceExhausted) text += "; free space on its server";
  failure_ = absl::Status(code, absl::StrCat("store ", address_, ": ", text));
  return failure_;
}

absl::Status Postgres::Run(absl::FunctionRef<absl::Status(pqxx::connection&)> body) {
  if (connection_ == nullptr && absl::Now() < next_attempt_) return failure_;
  try {
    if (connection_ == nullptr) {
      if (const absl::Status status = Connect(); !status.ok()) return failure_ = status;
    }
    const Answer answer(this, *connection_);
    return body(*connection_);
  } catch (const pqxx::in_doubt_error&) {
    return Failed(absl::StatusCode::kUnavailable,
                  "the connection broke during a commit, and it is not known whether the server "
                  "has it; written again, it is there once");
  } catch (const pqxx::sql_error& error) {
    return Failed(CodeOf(error.sqlstate()), error.what());
  } catch (const pqxx::broken_connection& error) {
    return Failed(absl::StatusCode::kUnavailable, error.what());
  } catch (const std::exception& error) {
    return Failed(absl::StatusCode::kInternal, error.what());
  }
}

absl::Status Postgres::RunTwice(absl::FunctionRef<absl::Status(pqxx::connection&)> body) {
  const bool was_idle = connection_ != nullptr;
  absl::Status status = Run(body);
  if (was_idle && absl::IsUnavailable(status)) status = Run(body);
  return status;
}

std::string SqlBytes(std::string_view bytes) {
  return absl::StrCat("'\\x", absl::BytesToHexString(absl::string_view(bytes.data(), bytes.size())),
                      "'::bytea");
}

std::string BytesOf(const pqxx::field& field) { return pqxx::binarystring(field).str(); }

}  // namespace seqpoint
