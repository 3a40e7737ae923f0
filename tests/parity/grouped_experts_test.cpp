// Mixtures whose experts are multiplied at once, bit by bit against the same experts one after the other.
#include <array>
#include <string>

#include "kernels/ref/ref.h"
#include "tests/parity/harness.h"

namespace sluice::parity {
namespace {

using kernels::Activation;
using kernels::Backend;
using kernels::ExpertBank;
using kernels::Weight;

constexpr int kExpertsOfBank = 9;
constexpr int64_t kSlotsOfToken = 3;

// How a bank's matrices are made.
struct BankKind {
  std::vector<DType> gate_up;  // two: gate and up are parts of their own
  DType down;
  int64_t dim = 256, inner = 256;
  bool bias = false;
  bool prepared = true;
  bool gated = true;
};

struct GroupedBank {
  std::vector<OwnedWeight> memory;
  ExpertBank bank;
};

GroupedBank make_grouped_bank(Random& random, const BankKind& kind) {
  GroupedBank owned;
  const int64_t halves = kind.gated ? 2 : 1;
  const int64_t rows = kind.inner * halves / static_cast<int64_t>(kind.gate_up.size());
  for (int expert = 0; expert < kExpertsOfBank; ++expert) {
    owned.memory.push_back(random_weight(random, kind.gate_up, rows, kind.dim, kind.bias));
    owned.bank.gate_up.push_back(owned.memory.back().weight);
    owned.memory.push_back(random_weight(random, {kind.down}, kind.dim, kind.inner, kind.bias));
    owned.bank.down.push_back(owned.memory.back().weight);
  }
  owned.bank.gated = kind.gated;
  if (!kind.gated) owned.bank.activation = Activation::Relu2;
  return owned;
}

ExpertBank prepared_bank(Backend& backend, const GroupedBank& owned, bool prepares) {
  ExpertBank bank = owned.bank;
  if (!prepares) return bank;
  for (Weight& weight : bank.gate_up) weight = backend.prepare(weight);
  for (Weight& weight : bank.down) weight = backend.prepare(weight);
  return bank;
}

// Tokens choose among all experts but numbers 2 and 7, and half of all slots are of expert 4.
struct Routes {
  HostTensor ids, weights;
};

Routes uneven_routes(Random& random, int64_t tokens) {
  constexpr std::array<int32_t, 7> kUsed{0, 1, 3, 4, 5, 6, 8};
  Routes routed{HostTensor::make(DType::I32, {tokens, kSlotsOfToken}),
                random.tensor({tokens, kSlotsOfToken})};
  for (int64_t token = 0; token < tokens; ++token) {
    int32_t* ids = routed.ids.view.at<int32_t>(token);
    const auto first = static_cast<size_t>(random.below(5));
    ids[0] = kUsed[first];
    ids[1] = first == 3 || random.below(4) == 0 ? kUsed[first + 1] : 4;
    ids[2] = kUsed[first + 2] == ids[1] ? kUsed[(first + 6) % 7] : kUsed[first + 2];
  }
  return routed;
}

struct MixCall {
  TensorView x, ids, weights;
};

HostTensor mixed(Backend& backend, const MixCall& call, const ExpertBank& bank) {
  HostTensor out = HostTensor::make(DType::F32, {call.x.dim(0), call.x.dim(1)});
  backend.moe_ffn(out.view, call.x, call.ids, call.weights, bank);
  return out;
}

// What moe_ffn is: each token and slot by itself, in operations for dense weights.
HostTensor one_by_one(Backend& backend, const MixCall& call, const ExpertBank& bank) {
  const int64_t dim = call.x.dim(1);
  HostTensor out = HostTensor::make(DType::F32, {call.x.dim(0), dim});
  HostTensor input = HostTensor::make(DType::F32, {1, dim}), result = HostTensor::make(DType::F32, {1, dim});
  for (int64_t token = 0; token < call.x.dim(0); ++token) {
    for (int64_t slot = 0; slot < call.ids.dim(1); ++slot) {
      const int32_t expert = call.ids.at<int32_t>(token)[slot];
      if (!bank.has(expert)) continue;
      const Weight& gate_up = bank.gate_up[static_cast<size_t>(expert - bank.first)];
      const Weight& down = bank.down[static_cast<size_t>(expert - bank.first)];
      const float weight = call.weights.at<float>(token)[slot];
      HostTensor hidden = HostTensor::make(DType::F32, {1, gate_up.rows});
      HostTensor active = HostTensor::make(DType::F32, {1, down.cols});
      backend.copy(input.view, call.x.rows(token, token + 1));
      if (bank.weigh_inputs) backend.scale(input.view, weight);
      backend.matmul(hidden.view, input.view, gate_up);
      if (bank.gated && bank.limit > 0.0f) {
        const TensorView gate = hidden.view.columns(0, down.cols);
        backend.activate(gate, gate, bank.activation);
        backend.clamp(hidden.view, bank.limit);
        backend.gated(active.view, hidden.view, Activation::Identity);
      } else if (bank.gated) {
        backend.gated(active.view, hidden.view, bank.activation);
      } else {
        backend.activate(active.view, hidden.view, bank.activation);
      }
      backend.matmul(result.view, active.view, down);
      const TensorView sum = out.view.rows(token, token + 1);
      backend.add(sum, sum, result.view, bank.weigh_inputs ? 1.0f : weight);
    }
  }
  return out;
}

std::string describe_mix(const Backend& backend, const BankKind& kind, int64_t tokens) {
  std::string text = backend.name();
  for (const DType type : kind.gate_up) text += " " + std::string(name(type));
  return text + " / " + std::string(name(kind.down)) + (kind.prepared ? " panels" : " rows") + ", inner " +
         std::to_string(kind.inner) + ", tokens " + std::to_string(tokens);
}

// Bit by bit on every level, whatever the tokens beside one and the number of threads.
void check_bank(const BankKind& kind, const ExpertBank& settings = {}) {
  Random random(51);
  GroupedBank owned = make_grouped_bank(random, kind);
  if (settings.activation != Activation::Silu) owned.bank.activation = settings.activation;
  owned.bank.limit = settings.limit;
  owned.bank.weigh_inputs = settings.weigh_inputs;
  const auto one = cpu_backends(1), two = cpu_backends(2);
  for (const int64_t tokens :
       small_run() ? std::vector<int64_t>{1, 3, 40} : std::vector<int64_t>{1, 3, 8, 40}) {
    const HostTensor x = random.tensor({tokens, kind.dim}, 0.1f);
    const Routes routed = uneven_routes(random, tokens);
    const MixCall call{x.view, routed.ids.view, routed.weights.view};
    for (size_t level = 0; level < two.size(); ++level) {
      SCOPED_TRACE(describe_mix(*two[level], kind, tokens));
      const ExpertBank bank = prepared_bank(*two[level], owned, kind.prepared);
      const HostTensor out = mixed(*two[level], call, bank);
      ASSERT_TRUE(same_bits(out.view, one_by_one(*two[level], call, bank).view));
      ASSERT_TRUE(same_bits(out.view,
                            mixed(*one[level], call, prepared_bank(*one[level], owned, kind.prepared)).view));
    }
  }
}

TEST(GroupedExperts, BlockTypesInPanels) {
  check_bank({.gate_up = {DType::Q4_K, DType::Q4_K}, .down = DType::Q6_K});
  check_bank({.gate_up = {DType::Q8_0, DType::Q8_0}, .down = DType::Q8_0, .inner = 160});
  check_bank({.gate_up = {DType::Q4_0}, .down = DType::Q4_0, .inner = 96, .bias = true});
  check_bank({.gate_up = {DType::MXFP4}, .down = DType::MXFP4, .bias = true},
             {.activation = Activation::SwigluOai});
}

TEST(GroupedExperts, BlockTypesInRows) {
  check_bank({.gate_up = {DType::Q4_K, DType::Q4_K}, .down = DType::Q8_0, .prepared = false});
  check_bank({.gate_up = {DType::Q5_0}, .down = DType::Q4_1, .inner = 96, .bias = true, .prepared = false});
}

TEST(GroupedExperts, PlainTypes) {
  for (const DType type : {DType::F32, DType::F16, DType::BF16}) {
    for (const bool prepared : {false, true}) {
      check_bank({.gate_up = {type, type}, .down = type, .dim = 64, .inner = 72, .prepared = prepared});
      check_bank(
          {.gate_up = {type}, .down = type, .dim = 80, .inner = 96, .bias = true, .prepared = prepared});
    }
  }
}

TEST(GroupedExperts, TypesOfOneExpertDiffer) {
  check_bank({.gate_up = {DType::Q4_K, DType::Q6_K}, .down = DType::BF16});
  check_bank({.gate_up = {DType::BF16, DType::Q8_0}, .down = DType::Q5_K, .bias = true});
  check_bank({.gate_up = {DType::F32}, .down = DType::Q4_0, .prepared = false});
}

TEST(GroupedExperts, WithoutGates) {
  check_bank({.gate_up = {DType::Q4_K}, .down = DType::Q4_K, .gated = false});
  check_bank({.gate_up = {DType::BF16}, .down = DType::F16, .inner = 88, .bias = true, .gated = false});
  check_bank({.gate_up = {DType::F32, DType::F16}, .down = DType::F16, .inner = 80, .gated = false});
}

TEST(GroupedExperts, LimitsAndWeightsOfInputs) {
  check_bank({.gate_up = {DType::Q4_K, DType::Q4_K}, .down = DType::Q4_K}, {.limit = 0.5f});
  check_bank({.gate_up = {DType::Q8_0}, .down = DType::Q8_0}, {.weigh_inputs = true});
  check_bank({.gate_up = {DType::BF16}, .down = DType::BF16, .bias = true}, {.weigh_inputs = true});
}

// Gate rows that end within a panel which up rows begin in.
TEST(GroupedExperts, HalvesThatSharePanels) {
  check_bank({.gate_up = {DType::Q8_0}, .down = DType::F16, .inner = 72, .bias = true});
  check_bank({.gate_up = {DType::F32}, .down = DType::F32, .dim = 40, .inner = 23});
}

// Columns of one part of one expert lie in another order than those of x.
TEST(GroupedExperts, ColumnsInAnotherOrder) {
  Random random(52);
  GroupedBank owned = make_grouped_bank(random, {.gate_up = {DType::Q4_0, DType::Q4_0}, .down = DType::Q4_0});
  std::vector<int32_t> order(256);
  for (int32_t i = 0; i < 256; ++i) order[static_cast<size_t>(i)] = 255 - i;
  const auto reversed = std::make_shared<const std::vector<int32_t>>(order);
  owned.bank.gate_up[4].orders = {nullptr, reversed};
  owned.bank.down[5].orders = {reversed};
  const HostTensor x = random.tensor({8, 256}, 0.1f);
  const Routes routed = uneven_routes(random, 8);
  const MixCall call{x.view, routed.ids.view, routed.weights.view};
  for (const auto& backend : cpu_backends(2)) {
    SCOPED_TRACE(backend->name());
    const ExpertBank bank = prepared_bank(*backend, owned, true);
    ASSERT_TRUE(same_bits(mixed(*backend, call, bank).view, one_by_one(*backend, call, bank).view));
  }
}

// Of a layer that has experts in bytes, in 16 bits, in f32 and as they are stored: what an expert's neighbours are does not matter.
TEST(GroupedExperts, ExpertsDiffer) {
  Random random(55);
  const std::vector<BankKind> kinds{
      {.gate_up = {DType::Q4_K, DType::Q4_K}, .down = DType::Q6_K},
      {.gate_up = {DType::BF16, DType::BF16}, .down = DType::BF16, .bias = true},
      {.gate_up = {DType::F32}, .down = DType::F16},
      {.gate_up = {DType::Q8_0, DType::BF16}, .down = DType::Q4_0, .prepared = false},
      {.gate_up = {DType::BF16}, .down = DType::F32, .prepared = false}};
  std::vector<GroupedBank> owned;
  for (const BankKind& kind : kinds) owned.push_back(make_grouped_bank(random, kind));
  for (const int64_t tokens : {1, 2, 19, 70}) {
    const HostTensor x = random.tensor({tokens, 256}, 0.1f);
    const Routes routed = uneven_routes(random, tokens);
    const MixCall call{x.view, routed.ids.view, routed.weights.view};
    for (const auto& backend : cpu_backends(2)) {
      SCOPED_TRACE(backend->name() + ", tokens " + std::to_string(tokens));
      ExpertBank bank = owned[0].bank;
      for (size_t expert = 0; expert < bank.down.size(); ++expert) {
        const size_t kind = expert % kinds.size();
        const auto made = [&](const Weight& weight) {
          return kinds[kind].prepared ? backend->prepare(weight) : weight;
        };
        bank.gate_up[expert] = made(owned[kind].bank.gate_up[expert]);
        bank.down[expert] = made(owned[kind].bank.down[expert]);
      }
      for (const bool weighs : {false, true}) {
        bank.weigh_inputs = weighs;
        ASSERT_TRUE(same_bits(mixed(*backend, call, bank).view, one_by_one(*backend, call, bank).view));
      }
    }
  }
}

// All tokens choose one expert, in every slot.
TEST(GroupedExperts, OneExpertTakesAll) {
  Random random(56);
  for (const DType type : {DType::Q4_K, DType::BF16}) {
    const GroupedBank owned = make_grouped_bank(random, {.gate_up = {type, type}, .down = type});
    const HostTensor x = random.tensor({50, 256}, 0.1f);
    Routes routed = uneven_routes(random, 50);
    std::fill_n(routed.ids.view.at<int32_t>(), 150, 8);
    const MixCall call{x.view, routed.ids.view, routed.weights.view};
    for (const auto& backend : cpu_backends(2)) {
      SCOPED_TRACE(backend->name());
      const ExpertBank bank = prepared_bank(*backend, owned, true);
      ASSERT_TRUE(same_bits(mixed(*backend, call, bank).view, one_by_one(*backend, call, bank).view));
    }
  }
}

// A range of a layer's experts, of which some tokens use none, and then one that no token uses.
TEST(GroupedExperts, RangesOfExperts) {
  Random random(53);
  const GroupedBank owned =
      make_grouped_bank(random, {.gate_up = {DType::Q4_K, DType::Q4_K}, .down = DType::Q4_K});
  const HostTensor x = random.tensor({11, 256}, 0.1f);
  const Routes routed = uneven_routes(random, 11);
  const MixCall call{x.view, routed.ids.view, routed.weights.view};
  for (const auto& backend : cpu_backends(2)) {
    SCOPED_TRACE(backend->name());
    ExpertBank bank = prepared_bank(*backend, owned, true);
    bank.first = 5;
    ASSERT_TRUE(same_bits(mixed(*backend, call, bank).view, one_by_one(*backend, call, bank).view));
    bank.first = 100;
    const HostTensor nothing = HostTensor::make(DType::F32, {11, 256});
    ASSERT_TRUE(same_bits(mixed(*backend, call, bank).view, nothing.view));
  }
}

// One after the other, as layers run: what is left of a larger step changes nothing.
TEST(GroupedExperts, StepsOfOtherSizesBetween) {
  Random random(54);
  const GroupedBank owned =
      make_grouped_bank(random, {.gate_up = {DType::Q4_K, DType::Q4_K}, .down = DType::BF16});
  const HostTensor x = random.tensor({40, 256}, 0.1f);
  const Routes routed = uneven_routes(random, 40);
  for (const auto& backend : cpu_backends(2)) {
    SCOPED_TRACE(backend->name());
    const ExpertBank bank = prepared_bank(*backend, owned, true);
    const HostTensor all = mixed(*backend, {x.view, routed.ids.view, routed.weights.view}, bank);
    for (const auto& [begin, end] :
         {std::pair<int64_t, int64_t>{7, 8}, {0, 40}, {3, 20}, {39, 40}, {30, 38}}) {
      const HostTensor part = mixed(
          *backend,
          {x.view.rows(begin, end), routed.ids.view.rows(begin, end), routed.weights.view.rows(begin, end)},
          bank);
      ASSERT_TRUE(same_bits(part.view, all.view.rows(begin, end))) << begin << " to " << end;
    }
  }
}

}  // namespace
}  // namespace sluice::parity
