// A machine in numbers: what the planner knows of it, published or measured.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "lab/plan/step_table.h"
#include "lab/roofline.h"
#include "tensor/dtype.h"

namespace sluice::lab {

// Weights [outputs, inputs] of a GEMM.
struct StepGemm {
  DType type = DType::BF16;
  int64_t outputs = 0, inputs = 0;

  friend bool operator==(const StepGemm&, const StepGemm&) = default;
};

// Time of a GEMM of `rows` rows of activations with a matrix [width, inputs], per element of the matrix; measured.
struct GemmRate {
  DType type = DType::BF16;
  int width = 0;  // outputs of the matrix
  int rows = 1;
  double seconds_per_element = 0;
  int inputs = 0;  // 0: as many as outputs; else the matrix of a model
};

// Measured; 0: not measured.
struct AttentionRates {
  // Few query rows share a KV head, whose keys and values come from memory: seconds per number of them, and more for each
  // row.
  double read = 0, row = 0;
  // Many rows do, as in prefill: seconds per operation where a row sees few positions (kShortSeen) and many (kLongSeen).
  double tile_short = 0, tile_long = 0;

  static constexpr double kShortSeen = 256, kLongSeen = 2048;
  bool measured() const { return row > 0 && tile_short > 0; }
};

// One call of attention with the heads of a model, measured: sequences of so many queries, each of which sees so many
// positions in the mean.
struct AttentionRate {
  int heads = 0, kv_heads = 0, dim = 0;
  int sequences = 1, queries = 1;
  double seen = 0, seconds = 0;
};

struct Machine {
  std::string name;
  double memory = 0;                     // bytes
  double read = 0;                       // bytes a second
  std::array<double, 3> multiply{};      // operations a second, by Arithmetic
  Arithmetic blocks = Arithmetic::Bf16;  // in which quantised weights are multiplied
  double host_link = 0;                  // bytes a second between device and host; 0: memory is the host's
  double peer_link = 0;                  // bytes a second from one device to another
  double price = 0;                      // of an hour; 0: not known
  // Shares of the limits that steps reach, and what each operation costs beside its work.
  double read_share = 0.85, multiply_share = 0.7;
  double overhead = 4e-6;

  // Measured machines only; empty or 0: by the limits.
  std::vector<GemmRate> gemms;  // by type, width and rows
  AttentionRates attention;
  std::vector<AttentionRate> attentions;  // of a model's heads, which count before the rates
  double elementwise = 0;                 // seconds per number of norms, gates and sums
  StepRates steps;                        // of a model, which count before all else

  bool measured() const { return !gemms.empty(); }
  double multiply_rate(DType type) const;  // operations a second, as far as the limits go
};

// Figures as their makers publish them, dense, without sparsity; prices are what clouds ask for about, to compare with.
std::span<const Machine> known_machines();
// By name, case and blanks aside; an error lists the names.
Result<Machine> machine_named(std::string_view name);

// seconds_per_element at any number of rows and any width, between the measured square ones; 0 where the type was not
// measured.
double gemm_seconds_per_element(const Machine& machine, DType type, double rows, double width);
// Of a matrix that was measured with just this shape; 0 where none was.
double shape_seconds_per_element(const Machine& machine, const StepGemm& gemm, double rows);

// Of one layer and one sequence among as many, between the measured calls with the same heads; 0 where there are none.
// `asked` has all but the seconds.
double attention_call_seconds(const Machine& machine, const AttentionRate& asked);

json::object to_json(const Machine& machine);
Result<Machine> machine_from_json(const json::value& value, std::string_view what);

// Where the measured profile of this machine is kept: $XDG_CACHE_HOME or ~/.cache, then sluice/machine.json, or
// machine-cuda.json of its GPU.
std::string calibration_path(bool gpu = false);
Status save_machine(const Machine& machine, const std::string& path);
Result<Machine> load_machine(const std::string& path);

}  // namespace sluice::lab
