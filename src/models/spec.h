// A model's architecture as data. One decoder runs every ModelSpec; what a layer is, is a sum type, never a
// bag of flags that exclude each other.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "kernels/backend.h"
#include "models/layers/indexer_spec.h"
#include "models/loading/names.h"
#include "models/quantized/quantization.h"

namespace sluice::models {

using kernels::Activation;
using kernels::RopeStyle;

// Rotary positions, resolved to one frequency per pair. Layers name one by its index in ModelSpec::ropes.
struct Rope {
  std::vector<float> inverse_frequency;  // [pairs]; 2 * pairs <= head_dim
  float magnitude = 1.0f;                // factor on cos and sin
  RopeStyle style = RopeStyle::NeoX;
  // Frequencies of sequences longer than `limit`: a row for each further length, the last for all beyond. Empty: length
  // changes nothing.
  std::vector<float> beyond;  // [rows, pairs]
  int limit = 0;
  float magnitude_beyond = 1.0f;
  kernels::RopeSections sections{};  // of the pairs, where pictures have positions in several
  std::string note;                  // for describe: "theta 10000, yarn x4"
};

// What becomes of the keys of a sequence that generates beyond Rope::limit.
enum class Outgrown : uint8_t {
  Kept,  // a prompt is turned by the frequencies of its length, a generated token by those of the length it makes
  Recomputed  // all of the sequence is turned by the frequencies of its present length
};

enum class NormKind : uint8_t { Rms, Layer };

enum class QkNorm : uint8_t {
  None,
  PerHead,   // one gain of head_dim for all heads
  EachHead,  // per head, every head with a gain of its own
  Whole,     // over all heads of q, and of k, at once
  Scaleless  // per head, without a gain
};

// Queries at position p are multiplied by 1 + slope * log(1 + floor((p + offset) / length)).
struct AttentionTemperature {
  float slope = 0.0f;  // 0: none
  int length = 0;
  int offset = 0;
};

// Grouped-query attention over its own keys and values.
struct Attention {
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int value_dim = 0;  // of the values' heads; 0: head_dim
  int input_dim = 0;  // numbers of a token that it reads; 0: the model's width
  float scale = 1.0f;
  int window = 0;        // 0: sees everything before it
  bool chunked = false;  // sees, instead of the window, what comes before it in its chunk of that length
  float softcap = 0.0f;  // 0: none
  int rope = -1;         // index into ModelSpec::ropes; -1: no positions here
  QkNorm qk_norm = QkNorm::None;
  bool qk_norm_after_rope = false;
  bool norm_values = false;      // per head, without a gain
  bool values_are_keys = false;  // made by the keys' matrix
  bool sinks = false;
  bool gated = false;          // what was attended to is multiplied by gate(W x)
  bool gate_per_head = false;  // one gate for all of a head
  Activation gate = Activation::Sigmoid;
  bool norm_output = false;  // a norm over all heads before the output matrix
  float clip = 0.0f;         // q, k and v clamped to [-clip, clip]; 0: not
  bool clip_after_norm = false;
  float alibi = 0.0f;  // largest bias of the linear position slopes; 0: none
  float alibi_scale = 1.0f;
  AttentionTemperature temperature;
  int kv_copies = 1;         // ranks that keep each KV head, where heads are cut over ranks
  int kv_from = -1;          // another layer whose keys and values this one reads; -1: its own
  float input_scale = 1.0f;  // factor on q, k and v ...
  float key_scale = 1.0f;    // ... and on k once more ...
  float value_scale = 1.0f;  // ... and on v
  int adapter_rank = 0;      // q, k and v get each a second product, through so many numbers; 0: none
  BlockIndexer indexer;

  int values() const { return value_dim > 0 ? value_dim : head_dim; }
  // Whether queries, keys, values and gates are made in one product.
  bool gate_beside_qkv() const {
    return gated && !gate_per_head && kv_from < 0 && input_dim == 0 && adapter_rank == 0 && !norm_output &&
           indexer.chosen == 0;
  }
  // Whether nothing reads the layer's input but the product of queries, keys and values.
  bool reads_once() const {
    return adapter_rank == 0 && indexer.chosen == 0 && (!gated || gate_beside_qkv());
  }
};

// Attention over a compressed latent: per token one vector [latent + rope_dim] shared by all heads is cached.
struct LatentAttention {
  int heads = 0;
  int q_latent = 0;  // 0: queries straight from the input
  int latent = 0;
  int nope_dim = 0;  // per head, without position
  int rope_dim = 0;  // per head, with position
  int value_dim = 0;
  float scale = 1.0f;
  float norm_eps = 1e-6f;  // of the latents' norms, whatever the model's own is
  int rope = -1;
  AttentionTemperature temperature;
  Indexer indexer;
};

// out(c * conv(b * x)), where b, c and x are the parts of in(input), each of the model's width.
struct ShortConv {
  int taps = 3;
  int channels = 0;  // of each part, where they are cut over ranks; 0: the model's width

  int64_t width(int64_t dim) const { return channels > 0 ? channels : dim; }
};

// Linear attention by the gated delta rule (kernels::DeltaRule) over convolved queries, keys and values; its heads are
// normed, multiplied by a gate and projected.
struct GatedDelta {
  int key_heads = 0;
  int value_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  int taps = 4;
  bool tiled = false;          // value head h has key head h % key_heads
  bool channel_decay = false;  // a decay for each key channel
  float beta_scale = 1.0f;
  int gate_latent = 0;  // gate and decay are made through so many numbers; 0: straight
  Activation gate = Activation::Silu;
  float norm_eps = 1e-6f;

  int64_t keys() const { return int64_t{key_heads} * key_dim; }
  int64_t values() const { return int64_t{value_heads} * value_dim; }
  int64_t channels() const { return 2 * keys() + values(); }  // convolved
};

// Mamba 2: one matrix makes a gate, what is convolved (x, b and c) and the steps of a selective scan.
struct StateSpace {
  enum class Norm : uint8_t {
    None,       // gate alone
    AfterGate,  // norm(gate * y)
    BeforeGate  // gate * norm(y)
  };
  int heads = 0;
  int head_dim = 0;
  int groups = 1;
  int state_dim = 0;
  int taps = 4;
  float least_step = 0.0f;
  float largest_step = std::numeric_limits<float>::infinity();
  Norm norm = Norm::AfterGate;
  int norm_groups = 1;
  int norm_ranks = 1;  // ranks that have the columns of a norm's group together
  float norm_eps = 1e-5f;
  float input_scale = 1.0f;        // factor on all that the matrix makes, ...
  std::vector<float> part_scales;  // ... and on gate, x, b, c and steps; empty: 1

  int64_t inner() const { return int64_t{heads} * head_dim; }
  int64_t channels() const { return inner() + int64_t{2} * groups * state_dim; }  // convolved
};

// Mamba 1: a scan of single channels, whose steps, b and c are made from what was convolved.
struct ChannelScan {
  int inner = 0;
  int state_dim = 0;
  int step_rank = 0;
  int taps = 4;
  bool norms = false;  // of steps, b and c
};

// Attention and a state space side by side, of the same input, added up.
struct AttentionBesideStateSpace {
  Attention attention;
  StateSpace scan;
  float attention_scale = 1.0f;
  float scan_scale = 1.0f;
};

struct NoMixer {};  // the layer is its feed-forward alone: x += ffn(norm x)
struct NoFfn {};    // the layer is its mixer alone: x += mixer(norm x)

struct DenseFfn {
  int inner = 0;
  Activation activation = Activation::Silu;
  bool gated = true;
  bool norm_inner = false;  // a norm before the down matrix
  float gate_scale = 1.0f;  // factor on the gate before its activation
  float scale = 1.0f;       // factor on what it gives
  float limit = 0.0f;       // activation(gate) and up are clamped to [-limit, limit]; 0: not
  int adapter_rank = 0;     // gate and up get a second product, through so many numbers; 0: none
  // Gates become relu(gate - mean - cutoff * deviation), of their row; -infinity: they stay.
  float cutoff = -std::numeric_limits<float>::infinity();

  bool cuts_off() const { return cutoff > -std::numeric_limits<float>::infinity(); }
  // Whether nothing reads the input but the first product.
  bool reads_once() const { return adapter_rank == 0; }
};

// Zamba 2: scan(norm(x + out(ffn(norm(attention(norm([x, e]))))))), e the token's embedding. Several layers run one block of
// attention and feed-forward; the scan, `out` and adapters are a layer's own.
struct StateSpaceAfterBlock {
  Attention attention;
  DenseFfn ffn;
  StateSpace scan;
  int block_from = -1;  // an earlier layer whose block this one runs; -1: its own
  int use = 0;          // so many layers before it run blocks: the number of its adapters
  std::string
      block_names;  // what the names of the block's weights begin with, in the place of those of the layer ...
  std::string scan_names;  // ... and those of the scan's
};

struct MoeFfn {
  kernels::Routing routing;  // choice_bias is bound at load where router_choice_bias is set
  bool router_choice_bias = false;
  bool router_weight_scale = false;  // likewise routing.weight_scale
  float router_softcap = 0.0f;       // of the logits; 0: none
  int inner = 0;
  Activation activation = Activation::Silu;
  bool gated = true;
  int shared_inner = 0;       // an expert that every token uses; 0: none
  bool shared_gate = false;   // its output is multiplied by sigmoid(x · gate)
  float shared_scale = 1.0f;  // factor on its output
  float limit = 0.0f;         // as of DenseFfn, of the routed experts ...
  float shared_limit = 0.0f;  // ... and of the shared one
  int latent =
      0;  // routed experts read and give so many numbers, made of x and brought back; 0: the model's width
  bool weigh_inputs = false;  // routing weights multiply what the experts read instead of what they give
};

// A dense feed-forward and experts side by side, each with norms of its own around it, that read the stream itself:
// norm(dense(norm x)) + norm(experts(norm x)). The router reads the stream normed, too.
struct DenseBesideExperts {
  DenseFfn dense;
  MoeFfn experts;
};

// down(xielu(up x)), where xielu(x) is, with p = softplus(alpha_p) and n = beta + softplus(alpha_n),
// p x² + beta x where x is positive and n (exp(x) - 1 - x) + beta x elsewhere.
struct Xielu {
  float alpha_p = 0.0f;
  float alpha_n = 0.0f;
  float beta = 0.5f;
};
struct XieluFfn {
  int inner = 0;
  Xielu parameters;  // those of a file that keeps them with its hyper-parameters instead of its tensors
};

// How norms, mixer and feed-forward are wired around the residual stream x.
enum class Wiring : uint8_t {
  PreNorm,           // x += mixer(norm x);            x += ffn(norm x)
  PostNorm,          // x += norm(mixer x);            x += norm(ffn x)
  SumNorm,           // x = norm(x + mixer x);         x = norm(x + ffn x)
  NormedStream,      // x = n + mixer n, n = norm x;   x = n + ffn n, n = norm x
  Sandwich,          // x += norm(mixer(norm x));      x += norm(ffn(norm x))
  Parallel,          // x += mixer(norm x) + ffn(norm x), one norm
  ParallelTwoNorms,  // x += mixer(norm1 x) + ffn(norm2 x)
  BesideTokens,      // x += mixer([norm e, norm x]), e the token's embedding; x += ffn(norm x)
  TokensBeside,      // x += mixer([x, e]), which norms for itself
  Laurel,  // n = norm x; x = (x + norm(mixer n) + n + norm(low_rank n)) / sqrt 2;  x += norm(ffn(norm x))
};

struct LayerSpec {
  std::variant<Attention, LatentAttention, ShortConv, GatedDelta, StateSpace, ChannelScan,
               AttentionBesideStateSpace, StateSpaceAfterBlock, NoMixer>
      mixer;
  std::variant<DenseFfn, MoeFfn, DenseBesideExperts, XieluFfn, NoFfn> ffn;
  Wiring wiring = Wiring::PreNorm;
  bool scaled = false;  // x leaves the layer multiplied by a factor that the file holds
};

constexpr size_t kMaxRopes = 4;

// A vector per position that is added to the token's.
enum class Positions : uint8_t {
  None,
  Learned,
  Sinusoidal  // sines of all frequencies, then cosines
};

// Several streams of residuals (AltUp). Before a layer each is predicted from all of them; the layer runs on one, and what it
// has changed there corrects the others.
struct Streams {
  int count = 0;  // 0: one, plainly
  int active = 0;
  bool scaled = true;   // the layer's input reads the corrected stream times a gain
  int laurel_rank = 0;  // of Wiring::Laurel
};

struct ModelSpec {
  std::string family;
  Quantization quantization;  // of the files
  int dim = 0;
  int vocab = 0;
  int context = 0;        // positions the model was made for
  int context_limit = 0;  // positions beyond which its layers would compute something else; 0: none
  NormKind norm = NormKind::Rms;
  bool norm_gain = true;    // false: norms without parameters
  bool output_norm = true;  // before the logits
  float norm_eps = 1e-5f;
  float post_norm_eps = 0.0f;  // of the norms behind mixers and feed-forwards (Wiring::Sandwich); 0: norm_eps
  float embedding_scale = 1.0f;
  float residual_scale = 1.0f;  // factor on what a mixer or ffn adds to x
  float logit_scale = 1.0f;
  float logit_softcap = 0.0f;  // 0: none
  Positions positions = Positions::None;
  int position_offset = 0;  // first row of their table in use
  bool embedding_norm = false;
  bool embedding_norm_gain = true;
  // Width of the embedding and of the output matrix, projected to and from dim; 0: dim.
  int embedding_dim = 0;
  bool tied_output = false;     // logits from the token embedding
  int per_layer_embedding = 0;  // numbers that each layer gets of each token, beside x; 0: none
  Activation per_layer_gate = Activation::GeluTanh;
  int per_layer_vocab = 0;  // tokens that have any of their own, the others have those of token 0; 0: all
  Streams streams;
  std::vector<Rope> ropes;  // at most kMaxRopes; those with rows for longer sequences have the same limit
  Outgrown outgrown = Outgrown::Kept;
  std::vector<LayerSpec> layers;
  WeightNames names;
};

// Numbers of a token in the embedding and in the output matrix.
inline int embedding_width(const ModelSpec& spec) {
  return spec.embedding_dim > 0 ? spec.embedding_dim : spec.dim;
}

// Whether the layer reads the embeddings of the step's tokens beside the stream.
inline bool reads_tokens(const LayerSpec& layer) {
  return layer.wiring == Wiring::BesideTokens || layer.wiring == Wiring::TokensBeside;
}

// Whether tokens may lie at any ascending rotary positions: every layer sees all that comes before a token, and nothing but
// one fixed rope, or no position at all, says where that lies.
bool takes_positions(const ModelSpec& spec);

// The rope that changes with the length of the sequence; null: none does.
const Rope* changing_rope(const ModelSpec& spec);

// How the layer chooses positions.
struct PositionChoice {
  int64_t most = 0;  // 0: it does not
  int heads = 0;     // of its indexer; 0: the positions are those of the layer before
};
PositionChoice choice_of(const LayerSpec& layer);

// Positions up to which every layer attends to all that comes before: as many as its indexer chooses; 0: to any length.
int positions_before_choice(const ModelSpec& spec);

// Takes the indexers away: the model is the same up to that many positions, which become its limit.
void drop_indexers(ModelSpec& spec);

// What a layer keeps of a sequence between steps.
struct PagedKv {  // keys and values of the positions that it still sees
  int kv_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  bool value_in_key = false;  // values are the first value_dim elements of the key
  int window = 0;
  int index_dim = 0;  // of one more key, that of an indexer; 0: none

  // Numbers of one position.
  int64_t width() const { return int64_t{kv_heads} * (key_dim + (value_in_key ? 0 : value_dim)) + index_dim; }
};
struct KvOf {  // nothing: it reads the keys and values of that layer
  int layer = 0;
};
struct Recurrent {             // one state of f32, however long the sequence is
  std::vector<int64_t> shape;  // at most 3 dimensions

  int64_t elements() const;
};
struct KvAndState {
  PagedKv kv;
  Recurrent state;
};
struct NoState {};  // nothing at all
using LayerState = std::variant<PagedKv, KvOf, Recurrent, KvAndState, NoState>;

std::vector<LayerState> layer_states(const ModelSpec&);
// What the layer reads, its own or another's; null where it reads none.
const PagedKv* kv_of(std::span<const LayerState> states, size_t layer);
// Null where it keeps none.
const Recurrent* recurrent_of(const LayerState& state);
// What the mixer is called, where it keeps a state; empty where it keeps none.
std::string_view recurrent_kind(const LayerSpec& layer);

// Whether the model makes large errors of those of rounding. One of several residual streams brings them to all of them, in
// every layer; the choice of experts may fall on another; and a state whose decays are exponentials keeps them, of which norms
// of what is read from it, and of what is written to it, make more where that is short.
bool routes(const ModelSpec&);
bool magnifies_errors(const ModelSpec&);

// Of one position in all layers; a layer that reads another's counts nothing.
int64_t kv_bytes_per_token(std::span<const LayerState> states, DType kv_type);
// Of one sequence in all layers.
int64_t state_bytes(std::span<const LayerState> states);
int64_t kv_bytes_per_token(const ModelSpec&, DType kv_type);
int64_t parameter_count(const ModelSpec&);         // weights as the spec implies them, embeddings included
int64_t active_parameter_count(const ModelSpec&);  // those one token's forward pass multiplies

// The architecture as readable pseudo-code.
std::string describe(const ModelSpec&);

}  // namespace sluice::models
