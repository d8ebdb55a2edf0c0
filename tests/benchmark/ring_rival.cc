#include "tests/benchmark/ring_rival.h"

#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "ring_rival.grpc.pb.h"

namespace seqpoint {
namespace {

constexpr int kBatchRecords = 1024;

class RivalService : public benchmark::RingRival::Service {
  grpc::Status Push(grpc::ServerContext* context, grpc::ServerReader<benchmark::Batch>* reader,
                    benchmark::Count* count) override {
    benchmark::Batch batch;
    uint64_t records = 0;
    while (reader->Read(&batch)) {
      records += static_cast<uint64_t>(batch.kernels_size()) + batch.raw().size() / 64;
    }
    count->set_records(records);
    return grpc::Status::OK;
  }
};

}  // namespace

std::string StartRivalServer() {
  const std::string path = "/tmp/seqpoint-rival-" + std::to_string(getpid());
  const std::string address = "unix:" + path;
  int ready[2];
  if (pipe(ready) != 0) abort();
  if (fork() == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    RivalService service;
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    builder.RegisterService(&service);
    const auto server = builder.BuildAndStart();
    if (server == nullptr || write(ready[1], "r", 1) != 1) _exit(1);
    server->Wait();
    _exit(0);
  }
  close(ready[1]);
  char byte;
  if (read(ready[0], &byte, 1) != 1) {
    fprintf(stderr, "the gRPC server at %s did not start\n", address.c_str());
    exit(1);
  }
  close(ready[0]);
  return address;
}

struct RivalStream::State {
  Encoding encoding;
  grpc::ClientContext context;
  std::unique_ptr<benchmark::RingRival::Stub> stub;
  benchmark::Count count;
  benchmark::Batch batch;
  std::unique_ptr<grpc::ClientWriter<benchmark::Batch>> writer;
  int records = 0;
};

RivalStream::RivalStream(const std::string& address, Encoding encoding)
    : state_(std::make_unique<State>()) {
  state_->encoding = encoding;
  state_->stub = benchmark::RingRival::NewStub(
      grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  state_->writer = state_->stub->Push(&state_->context, &state_->count);
}

RivalStream::~RivalStream() {
  Flush();
  state_->writer->WritesDone();
  state_->writer->Finish();
}

void RivalStream::Write(const abi::DataRecord& record) {
  if (state_->encoding == Encoding::kRaw) {
    state_->batch.mutable_raw()->append(reinterpret_cast<const char*>(&record), sizeof record);
  } else {
    const abi::KernelRecord& from = record.kernel;
    benchmark::Kernel* to = state_->batch.add_kernels();  // after Clear(): a recycled one
    to->set_device(from.device);
    to->set_name_id(from.name_id);
    to->set_start_ns(from.start_ns);
    to->set_end_ns(from.end_ns);
    to->set_correlation_id(from.correlation_id);
    to->set_stream(from.stream);
    to->set_grid_x(from.grid_x);
    to->set_grid_y(from.grid_y);
    to->set_grid_z(from.grid_z);
    to->set_block_x(from.block_x);
    to->set_block_y(from.block_y);
    to->set_block_z(from.block_z);
    to->set_registers_per_thread(from.registers_per_thread);
    to->set_context(from.context);
    to->set_graph_id(from.graph_id);
    to->set_static_shared_bytes(from.static_shared_bytes);
    to->set_dynamic_shared_bytes(from.dynamic_shared_bytes);
  }
  if (++state_->records == kBatchRecords) Flush();
}

void RivalStream::Flush() {
  if (state_->records == 0) return;
  if (!state_->writer->Write(state_->batch)) {
    fprintf(stderr, "the gRPC stream broke\n");
    exit(1);
  }
  state_->batch.mutable_kernels()->Clear();
  state_->batch.mutable_raw()->clear();  // both keep their memory
  state_->records = 0;
}

}  // namespace seqpoint
