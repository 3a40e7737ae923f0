// The quantization_config of each method. What is wrong stays in the reader.
#pragma once

#include "models/quantized/config_reader.h"
#include "models/quantized/quantization.h"

namespace sluice::models {

void read_gptq_config(ConfigReader& reader, Quantization& out);
void read_awq_config(ConfigReader& reader, Quantization& out);
// GPTQ's or AWQ's packing under AutoRound's keys.
void read_auto_round_config(ConfigReader& reader, Quantization& out);
void read_compressed_config(ConfigReader& reader, Quantization& out);

}  // namespace sluice::models
