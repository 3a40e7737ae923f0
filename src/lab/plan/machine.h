// A machine in numbers: what the planner knows of it, published or measured.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "lab/roofline.h"
#include "tensor/dtype.h"

namespace sluice::lab {

// Time of a GEMM with `rows` rows of activations, per element of its matrix; measured.
struct GemmRate {
  DType type = DType::BF16;
  int rows = 1;
  double seconds_per_element = 0;
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
  std::vector<GemmRate> gemms;   // by type, then by rows
  double decode_attention = 0;   // operations a second with one query of a sequence
  double prefill_attention = 0;  // with many
  double elementwise = 0;        // seconds per number of norms, gates and sums

  bool measured() const { return !gemms.empty(); }
  double multiply_rate(DType type) const;  // operations a second, as far as the limits go
};

// Figures as their makers publish them, dense, without sparsity; prices are what clouds ask for about, to compare with.
std::span<const Machine> known_machines();
// By name, case and blanks aside; an error lists the names.
Result<Machine> machine_named(std::string_view name);

// seconds_per_element at any number of rows, between the measured ones; 0 where the type was not measured.
double gemm_seconds_per_element(const Machine& machine, DType type, double rows);

json::object to_json(const Machine& machine);
Result<Machine> machine_from_json(const json::value& value, std::string_view what);

// Where the measured profile of this machine is kept: $XDG_CACHE_HOME or ~/.cache, then sluice/machine.json.
std::string calibration_path();
Status save_machine(const Machine& machine, const std::string& path);
Result<Machine> load_machine(const std::string& path);

}  // namespace sluice::lab
