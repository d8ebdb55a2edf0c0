#include "daemon/sparse/zoltan_partitioner.h"

#include <mpi.h>
#include <stdlib.h>
#include <zoltan.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace seqpoint::sparse {
namespace {

const Hypergraph& Graph(void* data) { return *static_cast<const Hypergraph*>(data); }

int VertexCount(void* data, int* error) {
  *error = ZOLTAN_OK;
  return static_cast<int>(Graph(data).vertex_weight.size());
}

void Vertices(void* data, int, int, ZOLTAN_ID_PTR global_ids, ZOLTAN_ID_PTR local_ids,
              int weights_each, float* weights, int* error) {
  const Hypergraph& graph = Graph(data);
  for (size_t i = 0; i < graph.vertex_weight.size(); ++i) {
    global_ids[i] = static_cast<ZOLTAN_ID_TYPE>(i);
    local_ids[i] = static_cast<ZOLTAN_ID_TYPE>(i);
    if (weights_each > 0) weights[i] = static_cast<float>(graph.vertex_weight[i]);
  }
  *error = ZOLTAN_OK;
}

void HypergraphSize(void* data, int* nets, int* pins, int* format, int* error) {
  *nets = static_cast<int>(Graph(data).pins_of_net.size()) - 1;
  *pins = static_cast<int>(Graph(data).pin.size());
  *format = ZOLTAN_COMPRESSED_EDGE;
  *error = ZOLTAN_OK;
}

void HypergraphPins(void* data, int, int nets, int pins, int, ZOLTAN_ID_PTR net_ids, int* begin,
                    ZOLTAN_ID_PTR pin_ids, int* error) {
  const Hypergraph& graph = Graph(data);
  for (int net = 0; net < nets; ++net) {
    net_ids[net] = static_cast<ZOLTAN_ID_TYPE>(net);
    begin[net] = static_cast<int>(graph.pins_of_net[net]);
  }
  std::copy(graph.pin.begin(), graph.pin.begin() + pins, pin_ids);
  *error = ZOLTAN_OK;
}

int FixedCount(void* data, int* error) {
  *error = ZOLTAN_OK;
  const Hypergraph& graph = Graph(data);
  return static_cast<int>(std::count_if(graph.fixed.begin(), graph.fixed.end(),
                                        [](int32_t part) { return part >= 0; }));
}

void FixedVertices(void* data, int, int, ZOLTAN_ID_PTR global_ids, int* parts, int* error) {
  const Hypergraph& graph = Graph(data);
  for (size_t i = 0; i < graph.fixed.size(); ++i) {
    if (graph.fixed[i] < 0) continue;
    *global_ids++ = static_cast<ZOLTAN_ID_TYPE>(i);
    *parts++ = graph.fixed[i];
  }
  *error = ZOLTAN_OK;
}

absl::StatusOr<std::vector<int32_t>> Partition(const Hypergraph& graph, int parts, double imbalance,
                                               uint64_t seed) {
  Zoltan_Struct* zoltan = Zoltan_Create(MPI_COMM_SELF);
  if (zoltan == nullptr) return absl::UnavailableError("Zoltan has no memory for a partitioning");
  const auto set = [&](const char* name, const std::string& value) {
    Zoltan_Set_Param(zoltan, name, value.c_str());
  };
  // Names and meaning: Zoltan User's Guide, "General Parameters", "Hypergraph Partitioning".
  set("DEBUG_LEVEL", "0");
  set("LB_METHOD", "HYPERGRAPH");
  set("HYPERGRAPH_PACKAGE", "PHG");
  set("LB_APPROACH", "PARTITION");
  set("NUM_GID_ENTRIES", "1");
  set("NUM_LID_ENTRIES", "1");
  set("OBJ_WEIGHT_DIM", "1");
  set("EDGE_WEIGHT_DIM", "0");
  set("RETURN_LISTS", "PARTS");
  set("PHG_CUT_OBJECTIVE", "CONNECTIVITY");
  // Its default leaves out nets with more than a quarter of all vertices, with a warning.
  set("PHG_EDGE_SIZE_THRESHOLD", "1.0");
  set("NUM_GLOBAL_PARTS", absl::StrCat(parts));
  set("IMBALANCE_TOL", absl::StrFormat("%.6f", 1 + imbalance));
  set("SEED", absl::StrCat(seed % 1'000'000 + 1));
  void* data = const_cast<Hypergraph*>(&graph);
  Zoltan_Set_Num_Obj_Fn(zoltan, VertexCount, data);
  Zoltan_Set_Obj_List_Fn(zoltan, Vertices, data);
  Zoltan_Set_HG_Size_CS_Fn(zoltan, HypergraphSize, data);
  Zoltan_Set_HG_CS_Fn(zoltan, HypergraphPins, data);
  Zoltan_Set_Num_Fixed_Obj_Fn(zoltan, FixedCount, data);
  Zoltan_Set_Fixed_Obj_List_Fn(zoltan, FixedVertices, data);

  int changes = 0, id_entries = 0, local_id_entries = 0, imports = 0, exports = 0;
  ZOLTAN_ID_PTR import_ids = nullptr, import_local = nullptr, export_ids = nullptr,
                export_local = nullptr;
  int *import_ranks = nullptr, *import_parts = nullptr, *export_ranks = nullptr,
      *export_parts = nullptr;
  const int result =
      Zoltan_LB_Partition(zoltan, &changes, &id_entries, &local_id_entries, &imports, &import_ids,
                          &import_local, &import_ranks, &import_parts, &exports, &export_ids,
                          &export_local, &export_ranks, &export_parts);
  absl::StatusOr<std::vector<int32_t>> answer = std::vector<int32_t>(graph.vertex_weight.size());
  if (result != ZOLTAN_OK && result != ZOLTAN_WARN) {
    answer = absl::UnavailableError(absl::StrCat("Zoltan did not partition (its code ", result,
                                                 result == ZOLTAN_MEMERR ? ", no memory)" : ")"));
  } else if (exports != static_cast<int>(graph.vertex_weight.size())) {
    answer = absl::UnavailableError(absl::StrCat("Zoltan gave parts for ", exports, " of ",
                                                 graph.vertex_weight.size(), " vertices"));
  } else {
    for (int i = 0; i < exports; ++i) (*answer)[export_ids[i]] = export_parts[i];
  }
  Zoltan_LB_Free_Part(&import_ids, &import_local, &import_ranks, &import_parts);
  Zoltan_LB_Free_Part(&export_ids, &export_local, &export_ranks, &export_parts);
  Zoltan_Destroy(&zoltan);
  return answer;
}

void EndMpi() {
  int ended = 0;
  MPI_Finalized(&ended);
  if (ended == 0) MPI_Finalize();
}

}  // namespace

absl::StatusOr<HypergraphPartitioner> MakeZoltanPartitioner() {
  int started = 0;
  MPI_Initialized(&started);
  if (started == 0) {
    // One process without mpirun: Open MPI would start its daemon `orted`, which wants ssh, a
    // network interface and 0.5 s; alone it takes 0.03 s. Sources: orte/mca/ess/singleton
    // (parameter ess_singleton_isolated), ompi/mca/pml/ob1, opal/mca/btl/self of Open MPI 4.1. A
    // value that somebody set is kept.
    setenv("OMPI_MCA_ess_singleton_isolated", "1", 0);
    setenv("OMPI_MCA_pml", "ob1", 0);
    setenv("OMPI_MCA_btl", "self", 0);
    if (MPI_Init(nullptr, nullptr) != MPI_SUCCESS) {
      return absl::UnavailableError("MPI does not start");
    }
    atexit(EndMpi);
  }
  float version = 0;
  if (Zoltan_Initialize(0, nullptr, &version) != ZOLTAN_OK) {
    return absl::UnavailableError("Zoltan does not start");
  }
  return HypergraphPartitioner(&Partition);
}

}  // namespace seqpoint::sparse
