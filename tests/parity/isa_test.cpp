// Levels: their names, their choice, and a line that says which ones this run covers.
#include <algorithm>
#include <cstdio>

#include "base/platform.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd/features.h"
#include "kernels/cpu/simd/isa.h"
#include "tests/parity/harness.h"

namespace sluice::parity {
namespace {

using kernels::cpu::IsaLevel;

TEST(Isa, SaysWhatThisRunCovers) {
  std::string run;
  std::string compiled;
  for (const IsaLevel& level : kernels::cpu::isa_levels()) {
    (level.available ? run : compiled) += " " + std::string(level.name);
  }
  std::printf("parity on %s: ran ref%s; compiled but not run here:%s\n", kArchitecture, run.c_str(),
              compiled.empty() ? " none" : compiled.c_str());
}

TEST(Isa, ScalarIsAlwaysThereAndNamesAreUnique) {
  const std::vector<std::string> names = kernels::available_isa_names();
  ASSERT_FALSE(names.empty());
  EXPECT_EQ(names.front(), "scalar");
  for (size_t i = 0; i < names.size(); ++i) EXPECT_EQ(std::count(names.begin(), names.end(), names[i]), 1);
}

TEST(Isa, EveryAvailableNameIsChosen) {
  for (const IsaLevel& level : kernels::cpu::available_isa_levels()) {
    const auto backend = kernels::make_cpu_backend({1, std::string(level.name)});
    ASSERT_TRUE(backend.ok());
    EXPECT_EQ((*backend)->name(), "cpu " + std::string(level.features));
  }
}

TEST(Isa, EmptyNameIsTheBest) {
  const auto levels = kernels::cpu::available_isa_levels();
  EXPECT_EQ(kernels::cpu::find_isa_level("").value().name, levels.back().name);
}

TEST(Isa, UnknownNameSaysWhatThereIs) {
  const auto backend = kernels::make_cpu_backend({1, "sse9"});
  ASSERT_FALSE(backend.ok());
  EXPECT_EQ(backend.error().code, ErrorCode::InvalidArgument);
  EXPECT_NE(backend.error().message.find("sse9"), std::string::npos);
  EXPECT_NE(backend.error().message.find("scalar"), std::string::npos);
}

TEST(Isa, MissingLevelIsUnavailableNotUnknown) {
  for (const IsaLevel& level : kernels::cpu::isa_levels()) {
    if (level.available) continue;
    const auto found = kernels::cpu::find_isa_level(level.name);
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(found.error().code, ErrorCode::Unavailable);
  }
}

// A richer level is only offered with all that it contains.
TEST(Isa, FeaturesNest) {
  const kernels::cpu::X86Features x86 = kernels::cpu::x86_features();
  EXPECT_TRUE(!x86.avx512 || x86.avx2);
  EXPECT_TRUE(!x86.avx512_vnni || x86.avx512);
  EXPECT_TRUE(!x86.avx512_bf16 || x86.avx512_vnni);
  EXPECT_TRUE(!x86.amx || x86.avx512_bf16);
  bool missing = false;
  for (const IsaLevel& level : kernels::cpu::isa_levels()) {
    EXPECT_FALSE(missing && level.available) << level.name;
    missing = missing || !level.available;
  }
}

}  // namespace
}  // namespace sluice::parity
