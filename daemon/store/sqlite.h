// A thin layer over SQLite: statements that finalise themselves, and errors that say what to do.
//
// Threading: a Database and its statements belong to one thread at a time.
// Ownership: a Database owns its connection; statements must not outlive it.
#ifndef DAEMON_STORE_SQLITE_H_
#define DAEMON_STORE_SQLITE_H_

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/base/status_macros.h"

namespace seqpoint {

class Database;

// Bytes as they are, not text.
struct Blob {
  std::string_view bytes;
};

// Bind in order, then step until it is done:
//   while (statement.Next()) ids.push_back(statement.Int());
class Statement {
 public:
  Statement() = default;
  // Runs a statement without a result from its start, with these parameters.
  template <typename... Values>
  absl::Status RunWith(const Values&... values) {
    Reset();
    (Bind(values), ...);
    return Run();
  }
  // Steps a statement without a result to its end and resets it.
  absl::Status Run();
  // True while there is a row. False at the end or on an error, which status() then has.
  bool Next();
  const absl::Status& status() const { return status_; }

  // Starts again: forgets bindings and the row. Text and blobs bound are not copied: they must live
  // until the statement was run.
  Statement& Reset();
  Statement& Bind(int64_t value);
  Statement& Bind(std::string_view text);
  Statement& Bind(Blob blob);

  // Columns of the row, from left to right.
  int64_t Int();
  std::string Text();  // or blob
  // The next columns, in order; a number is cut to the type that it is read into.
  template <typename... Columns>
  void Read(Columns*... columns) {
    (ReadColumn(columns), ...);
  }

 private:
  friend class Database;
  void ReadColumn(std::string* column) { *column = Text(); }
  template <typename Number>
  void ReadColumn(Number* column) {
    *column = static_cast<Number>(Int());
  }
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };

  Database* database_ = nullptr;
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  int next_parameter_ = 1;
  int next_column_ = 0;
  absl::Status status_;
};

class Database {
 public:
  // Makes an empty file when there is none.
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::string& path,
                                                        const std::string& vfs);

  // Statements without a result, separated by semicolons.
  absl::Status Exec(const std::string& sql);
  absl::StatusOr<Statement> Prepare(std::string_view sql);
  // The first column of the first row; 0 or empty when there is no row.
  template <typename Column>
  absl::StatusOr<Column> First(std::string_view sql) {
    SEQPOINT_ASSIGN_OR_RETURN(Statement statement, Prepare(sql));
    Column value{};
    if (statement.Next()) statement.Read(&value);
    if (!statement.status().ok()) return statement.status();
    return value;
  }
  absl::StatusOr<int64_t> Int(std::string_view sql) { return First<int64_t>(sql); }
  // Ends an open transaction without its effects; does nothing when there is none.
  void Rollback();

  // The connection's last error as a status.
  absl::Status Error(int code) const;
  const std::string& path() const { return path_; }

 private:
  struct Close {
    void operator()(sqlite3* connection) const { sqlite3_close_v2(connection); }
  };
  explicit Database(std::string path) : path_(std::move(path)) {}

  std::string path_;
  std::unique_ptr<sqlite3, Close> connection_;
};

}  // namespace seqpoint

#endif  // DAEMON_STORE_SQLITE_H_
