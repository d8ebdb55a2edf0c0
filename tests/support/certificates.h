// Certificates of a test's own, made by the openssl program.
//
//   Certificates made(folder.path());
//   if (!made.Authority("ca")) GTEST_SKIP() << "openssl is not installed";
//   made.Issue("node", {.authority = "ca"});
//   ... made.Certificate("node"), made.Key("node")     // PEM files
//
// Threading: a value. Ownership: files in the caller's folder.
#ifndef TESTS_SUPPORT_CERTIFICATES_H_
#define TESTS_SUPPORT_CERTIFICATES_H_

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

namespace seqpoint {

class Certificates {
 public:
  struct Options {
    std::string authority;
    std::string address = "IP:127.0.0.1";  // whose it is
    int days = 2;                          // below 0: it has expired
  };

  explicit Certificates(std::filesystem::path folder) : folder_(std::move(folder)) {
    std::filesystem::create_directories(folder_);
  }

  // False: openssl is not there, or failed.
  bool Authority(const std::string& name) const {
    return Run("req -x509 " + NewKey(name) + " -days 2 -out " + Certificate(name));
  }
  bool Issue(const std::string& name, const Options& options) const {
    const std::string extensions = (folder_ / (name + ".ext")).string();
    const std::string request = (folder_ / (name + ".csr")).string();
    std::ofstream(extensions) << "subjectAltName=" << options.address << "\n";
    return Run("req " + NewKey(name) + " -out " + request) &&
           Run("x509 -req -in " + request + " -CA " + Certificate(options.authority) + " -CAkey " +
               Key(options.authority) + " -CAcreateserial -days " + std::to_string(options.days) +
               " -extfile " + extensions + " -out " + Certificate(name));
  }

  std::string Certificate(const std::string& name) const {
    return (folder_ / (name + ".pem")).string();
  }
  std::string Key(const std::string& name) const { return (folder_ / (name + ".key")).string(); }

 private:
  std::string NewKey(const std::string& name) const {
    return "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=" + name +
           " -keyout " + Key(name);
  }
  static bool Run(const std::string& arguments) {
    return system(("openssl " + arguments + " 2>/dev/null").c_str()) == 0;
  }

  const std::filesystem::path folder_;
};

}  // namespace seqpoint

#endif  // TESTS_SUPPORT_CERTIFICATES_H_
