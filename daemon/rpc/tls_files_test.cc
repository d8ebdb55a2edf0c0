#include "daemon/rpc/tls_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/certificates.h"
#include "tests/support/temp_folder.h"

namespace seqpoint::rpc {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TlsFilesTest : public testing::Test {
 protected:
  TlsFilesTest() : made_(folder_.path()) {}
  void SetUp() override {
    if (!made_.Authority("ca")) GTEST_SKIP() << "openssl is not installed";
    ASSERT_TRUE(made_.Issue("one", {.authority = "ca"}));
    ASSERT_TRUE(made_.Issue("two", {.authority = "ca"}));
    ASSERT_TRUE(made_.Issue("expired", {.authority = "ca", .days = -1}));
    Put("one");
  }
  TlsPem Paths() const {
    return {.certificate = folder_.path() / "used.pem",
            .key = folder_.path() / "used.key",
            .authorities = made_.Certificate("ca")};
  }
  // In place of the files in use.
  void PutCertificate(const std::string& name) {
    Copy(made_.Certificate(name), Paths().certificate);
  }
  void PutKey(const std::string& name) { Copy(made_.Key(name), Paths().key); }
  void Put(const std::string& name) {
    PutCertificate(name);
    PutKey(name);
  }
  static void Copy(const std::string& from, const std::string& to) {
    std::filesystem::copy_file(from, to + ".new",
                               std::filesystem::copy_options::overwrite_existing);
    std::filesystem::rename(to + ".new", to);
  }
  static std::string Error(const TlsPem& paths) {
    return std::string(TlsFiles::Open(paths).status().message());
  }

  const TempFolder folder_;
  const Certificates made_;
};

TEST_F(TlsFilesTest, FilesThatCannotBeAreNamed) {
  TlsPem paths = Paths();
  paths.key = "/nowhere/a.key";
  EXPECT_THAT(Error(paths), HasSubstr("/nowhere/a.key"));
  paths.key = paths.certificate;
  EXPECT_THAT(Error(paths), AllOf(HasSubstr("used.pem"), HasSubstr("holds no key in PEM")));
  paths = Paths();
  paths.certificate = paths.key;
  EXPECT_THAT(Error(paths), HasSubstr("holds no certificate in PEM"));
  paths = Paths();
  paths.authorities = paths.key;
  EXPECT_THAT(Error(paths), HasSubstr("holds no certificate in PEM"));
  PutKey("two");
  EXPECT_THAT(Error(Paths()), HasSubstr("is not the key of"));
}

TEST_F(TlsFilesTest, NewFilesAreTakenOnceTheyFit) {
  auto opened = TlsFiles::Open(Paths());
  ASSERT_TRUE(opened.ok()) << opened.status();
  TlsFiles& files = **opened;
  const std::string first = files.pem().certificate;
  EXPECT_FALSE(files.Reload());
  PutCertificate("two");  // its key is still to come
  EXPECT_FALSE(files.Reload());
  EXPECT_EQ(files.pem().certificate, first);
  PutKey("two");
  EXPECT_TRUE(files.Reload());
  EXPECT_NE(files.pem().certificate, first);
  EXPECT_FALSE(files.Reload());
}

TEST_F(TlsFilesTest, BrokenExpiredAndMissingFilesKeepTheOldOnes) {
  auto opened = TlsFiles::Open(Paths());
  ASSERT_TRUE(opened.ok()) << opened.status();
  TlsFiles& files = **opened;
  const std::string first = files.pem().certificate;
  Put("expired");
  EXPECT_FALSE(files.Reload());
  std::ofstream(Paths().certificate) << "-----BEGIN CERTIFICATE-----\nhalf";
  EXPECT_FALSE(files.Reload());
  std::filesystem::remove(Paths().certificate);
  EXPECT_FALSE(files.Reload());
  EXPECT_EQ(files.pem().certificate, first);
  Put("two");
  EXPECT_TRUE(files.Reload());
}

TEST_F(TlsFilesTest, AnExpiredCertificateDoesNotKeepADaemonFromItsWork) {
  Put("expired");
  EXPECT_TRUE(TlsFiles::Open(Paths()).ok());
}

}  // namespace
}  // namespace seqpoint::rpc
