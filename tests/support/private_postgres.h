// A PostgreSQL server of a test's own: Debian's programs, data and socket in a temporary folder, no
// TCP, no password. Root starts it as the user postgres, or nobody, because the server refuses
// root.
//
// Threading: a value of one thread. Ownership: ends the server and removes the folder.
#ifndef TESTS_SUPPORT_PRIVATE_POSTGRES_H_
#define TESTS_SUPPORT_PRIVATE_POSTGRES_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "tests/support/temp_folder.h"

namespace seqpoint {

class PrivatePostgres {
 public:
  // Why there can be no server here. Empty: there can.
  static std::string Missing();

  PrivatePostgres();
  ~PrivatePostgres() { Kill(); }

  // Until it answers, at once where it runs; false: it does not, and Log() tells why.
  bool Start();
  // kill -9, as a machine's death would be to those who are connected to it.
  void Kill();
  // Makes an empty database.
  bool CreateDatabase(const std::string& name);
  std::string AddressOf(const std::string& database) const;
  std::string Log() const;

 private:
  pid_t Spawn(const std::vector<std::string>& command) const;

  const TempFolder folder_;
  pid_t server_ = 0;
};

}  // namespace seqpoint

#endif  // TESTS_SUPPORT_PRIVATE_POSTGRES_H_
