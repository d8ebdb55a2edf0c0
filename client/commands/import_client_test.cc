#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fakes/fake_backend.h"
#include "tests/support/client_fixture.h"

namespace seqpoint::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(ClientTest, AnImportedLogIsAJob) {
  StartServer();
  const std::string path = directory_ / "steps.csv";
  std::ofstream(path) << "epoch,length,took\n1,5,2\n1,7,3\n1,x,3\n2,5,2\n";
  Result result = Client({"import", path});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("which column is the time"));
  result = Client({"import", path, "--time", "took"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("does not end in a unit"), HasSubstr("--time-unit")));
  const std::vector<std::string> import = {"import", path,          "--time", "took",     "--group",
                                           "epoch",  "--time-unit", "ms",     "--run-id", "r7"};
  result = Client(import);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("steps.csv:4: \"x\" in column length is not a number"),
                                HasSubstr("1 row left out, 3 can be used")));
  for (const char* expected :
       {"steps@r7 (job 2), ended", "steps.csv, lengths in length, times in took",
        "from:      steps.csv, lengths in length", "has:       3 iterations of 2 lengths",
        "whole run (3 iterations)  7.000 ms", "ask next: seqpoint project 2"}) {
    EXPECT_THAT(result.out, HasSubstr(expected));
  }
  // Nothing ran here.
  for (const char* of_a_run : {"command:", "started:", "so far", "horizon", "begins at"}) {
    EXPECT_THAT(result.out, Not(HasSubstr(of_a_run)));
  }
  EXPECT_THAT(Client({"jobs"}).out, ::testing::ContainsRegex("steps .* 2  +-  7.000 ms"));
  result = Client(import);
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("there is a job \"steps@r7\" already"));
  result = Client({"import", path, "--time", "took", "--time-unit", "s", "--name", "x", "--json"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("\"iterations_duration_ns\": \"7000000000\""));
  EXPECT_EQ(Client({"import", path, "--time", "took", "--time-unit", "h"}).code, 2);
  EXPECT_EQ(Client({"import", path, "--name", "a@b"}).code, 2);
}

TEST_F(ClientTest, AnImportedLogMayBeLong) {
  StartServer();
  const std::string path = directory_ / "long.csv";
  std::ofstream file(path);
  file << "length,time_us\n";
  for (int i = 0; i < 100'000; ++i) file << i % 50 << ",1\n";  // several messages
  file.close();
  const Result result = Client({"import", path});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("100,000 iterations of 50 lengths"));
}

// gzip of `text`.
void WriteGzip(const std::string& path, const std::string& text) {
  gzFile file = gzopen(path.c_str(), "wb1");
  ASSERT_EQ(gzwrite(file, text.data(), text.size()), static_cast<int>(text.size()));
  ASSERT_EQ(gzclose(file), Z_OK);
}

TEST_F(ClientTest, ImportedTracesAreAJob) {
  StartServer();
  const std::string rank0 = directory_ / "resnet.pt.trace.json", rank1 = directory_ / "log.csv.gz";
  std::string large = "\xEF\xBB\xBF {\"traceEvents\":[";
  while (large.size() < 1'000'000) absl::StrAppend(&large, "{\"ts\":", large.size(), "},");
  std::ofstream(rank0) << large;
  WriteGzip(rank1, "[{\"ts\":1}]");  // the name says nothing
  Result result = Client({"import", rank0, rank1, "--run-id", "r7", "--marker", "step (\\d+)"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(
      result.out,
      AllOf(HasSubstr("resnet@r7 (job 2), ended\nfrom:      PyTorch (Kineto), "),
            HasSubstr("   0       1,000  annotation ProfilerStep#  52,000    40,000  " + rank0),
            HasSubstr("   1       1,000  annotation ProfilerStep#  52,000    40,000  " + rank1),
            HasSubstr(": the file is cut: only what"), HasSubstr("seqpoint whatif 2 --list")));
  const rpc::FakeBackend::TraceImport import = backend_.last_trace_import();
  EXPECT_EQ(import.name, "resnet");
  EXPECT_EQ(import.marker, "step (\\d+)");
  ASSERT_EQ(import.files.size(), 2u);
  EXPECT_TRUE(import.files[0] == std::pair(rank0, large));
  EXPECT_TRUE(import.files[1] == std::pair(rank1, ReadFile(rank1)));  // as it is, packed
  EXPECT_EQ(import.largest_piece_bytes, 256u << 10);

  // A table of GPU activities is no log.
  const std::string table = directory_ / "gpu.csv";
  std::ofstream(table) << "#names: id\tname\n#0\tgemm\nstart_us,dur_us,stream,name_id,size\n";
  result = Client({"import", table, "--json", "--name", "x"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(StartsWith("{"), HasSubstr("\"gpu_tasks\": \"40000\"")));
  result = Client({"import", table, "--name", "x\x1b"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("name: holds a control character"));
  // Nothing becomes a job twice.
  EXPECT_EQ(Client({"import", rank0, "--run-id", "r7"}).code, 1);
}

TEST_F(ClientTest, WhatIsNoTraceIsSaid) {
  StartServer();
  const std::string trace = directory_ / "t.json", log = directory_ / "steps.csv",
                    binary = directory_ / "report.nsys-rep", plain = directory_ / "plain.txt";
  std::ofstream(plain) << "hello world\n";
  std::ofstream(trace) << "{\"traceEvents\":[]}";
  std::ofstream(log) << "length,time_ms\n5,2\n7,3\n";
  std::ofstream(binary) << "not a trace" << std::string(1, '\0');
  for (const auto& [arguments, expected] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{trace, log}, "several files must be traces, one of each rank; " + log + " is none"},
           {{log, log}, "several files must be traces"},
           {{log, "--marker", "x"}, "--marker is of traces; " + log + " is none"},
           {{trace, "--key", "a"}, "--key is of a log; " + trace + " is none"},
           {{trace, "--time", "a"}, "--time is of a log"},
           {{trace, "--time-unit", "ms"}, "--time-unit is of a log"},
           {{trace, "--group", "a"}, "--group is of a log"},
           {{trace, "--name", "a@b"}, "contains \"@\""},
           {{directory_ / "nope.json"}, "nope.json: No such file"},
           {{trace, directory_ / "nope.json"}, "nope.json: No such file"},
           {{directory_}, "Is a directory"},
           {{binary}, binary + " is not a trace"},
           {{plain}, plain + " is neither a trace nor a CSV with a header of columns"},
           {{}, "FILE is missing"}}) {
    std::vector<std::string> words = {"import"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    const Result result = Client(words);
    EXPECT_EQ(result.code, 2) << expected;
    EXPECT_THAT(result.err, HasSubstr(expected));
    EXPECT_EQ(result.out, "") << expected;
  }
  EXPECT_EQ(backend_.last_trace_import().name, "");
  EXPECT_EQ(Client({"import", log}).code, 0);
}

}  // namespace
}  // namespace seqpoint::client
