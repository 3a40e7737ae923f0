// A folder of safetensors written anew with its linear layers quantised.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/thread_pool.h"
#include "cli/quantize/calibration.h"
#include "formats/safetensors/folder_format.h"

namespace sluice::cli {

// Absent: no folder is written in that type.
std::optional<formats::FolderFormat> find_folder_type(std::string_view name);
// All of them, with commas.
std::string folder_type_names();

// Writes OUT.part and renames it when it is whole; the same call takes up a part that an earlier one left behind. Embeddings,
// the output, norms, routers and whatever is no matrix stay as they are. `calibration` may be null.
Status quantize_folder(const std::string& in, const std::string& out, formats::FolderFormat format,
                       const Calibration* calibration, ThreadPool& pool);

}  // namespace sluice::cli
