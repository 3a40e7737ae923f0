// Vision towers as data: how a picture is cut, an encoder of patches, and how its output becomes embeddings of the decoder.
// A family is a file that fills a VisionSpec; one tower runs every spec.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "formats/tensor_store.h"
#include "image/image.h"
#include "kernels/backend.h"
#include "models/loading/config/config.h"
#include "models/spec.h"

namespace sluice::models {

// -- what a processor makes of a picture

// Square tiles and, where there are several, the picture itself in the size of one of them (Idefics 3, SmolVLM).
struct TiledPicture {
  int longest_edge = 0;  // the picture is first brought to this
  int tile = 0;
  bool split = true;  // false: the picture in the size of a tile alone
};

// A square (LLaVA, Gemma 3).
struct SquarePicture {
  int side = 0;
  bool cut =
      false;  // the shorter edge becomes `side`, and the middle is cut out; false: both edges become `side`
};

// Whole merged patches, within a number of pixels (Qwen).
struct ScaledPicture {
  int64_t min_pixels = 0, max_pixels = 0;
};

// Whole merged patches, no edge longer than this; a token ends each row of them (Pixtral, Mistral 3).
struct RowPicture {
  int longest_edge = 0;
  std::string row_end, last_row_end;
};

// Tiles of the grid whose shape is nearest to the picture's, and the picture in the size of a tile (InternVL).
struct GridPicture {
  int tile = 0;
  int min_tiles = 1, max_tiles = 1;
};

// -- the encoder: x = patches + positions; x += attention(norm x); x += ffn(norm x)

enum class TablePositions : uint8_t {
  None,
  Nearest,  // rows at the same share of a side: those of the table where a picture has as many patches
  Bilinear  // between the table's corners
};

// Half of the pairs of a head turn by a patch's row, the other half by its column.
struct PatchRope {
  float theta = 0.0f;        // 0: none
  bool alternating = false;  // rows take the even ones of the head's frequencies, columns the odd ones
};

// Names behind the tower's prefix; those of layers behind `layer`, in which {} is its number.
struct TowerNames {
  std::string_view patches = "embeddings.patch_embedding";
  std::string_view positions = "embeddings.position_embedding.weight";
  std::string_view class_token = "embeddings.class_embedding";
  std::string_view input_norm = "pre_layrnorm", output_norm = "post_layernorm";
  std::string_view layer = "encoder.layers.{}.";
  std::string_view attention_norm = "layer_norm1", ffn_norm = "layer_norm2";
  std::vector<std::string_view> qkv{"self_attn.q_proj", "self_attn.k_proj",
                                    "self_attn.v_proj"};  // or all in one
  std::string_view q_norm, k_norm;                        // empty: none
  std::string_view out = "self_attn.out_proj";
  std::vector<std::string_view> up{"mlp.fc1"};  // gate, then up, where it is gated
  std::string_view down = "mlp.fc2";
  std::string_view attention_scale, ffn_scale;  // of what is added to x, number by number; empty: none
};

// -- from patches to embeddings, step by step

struct MergePatches {};  // factor² neighbours side by side make one row
struct PoolPatches {};   // their average does
struct ProjectorNorm {
  std::string stem;
  NormKind kind = NormKind::Layer;
  float eps = 1e-5f;
  bool plus_one = false;  // gains are 1 + w
};
struct ProjectorMatrix {
  enum class Stored : uint8_t {
    Rows,
    Columns,      // transposed
    ChannelFirst  // of merged patches: all neighbours' first number, then their second, ...
  };
  std::string stem;
  int rows = 0;
  bool activated = false;
  Stored stored = Stored::Rows;
};
using ProjectorStep = std::variant<MergePatches, PoolPatches, ProjectorNorm, ProjectorMatrix>;
using Projector = std::vector<ProjectorStep>;

// What the decoder's layers 0, 1, ... add at a picture's positions, made of x behind layers of the tower.
struct DeepProjector {
  int layer = 0;
  Projector projector;
};

struct VisionSpec {
  std::string family;
  // -- prompts
  std::string placeholder;  // what a chat template writes for a picture
  std::string before, after;
  std::string image_token;  // one for each embedding
  Token image_token_id = -1;
  bool bidirectional = false;  // positions of a picture see each other
  bool grid_positions =
      false;  // positions of a picture are (0, row, column) from the one behind what comes before
  // -- processing
  std::variant<TiledPicture, SquarePicture, ScaledPicture, RowPicture, GridPicture> picture;
  image::Filter filter = image::Filter::Bicubic;
  std::array<float, 3> mean{0.5f, 0.5f, 0.5f}, deviation{0.5f, 0.5f, 0.5f};  // of values from 0 to 1
  // -- encoder
  int patch = 0;
  int frames = 1;  // equal pictures one behind the other that a patch is made of
  int grid = 0;    // patches of a side that the table of positions has
  int dim = 0, heads = 0, inner = 0, layers = 0;
  NormKind norm = NormKind::Layer;
  float norm_eps = 1e-6f;
  kernels::Activation activation = kernels::Activation::GeluTanh;
  float activation_scale = 1.0f;  // activation(scale x) / scale
  bool gated = false;
  TablePositions positions = TablePositions::Nearest;
  PatchRope rope;
  int window = 0;                // merged patches of a side that see each other; 0: all do
  std::vector<int> full_layers;  // in which all do
  bool class_token = false;      // before the patches; dropped at the end
  bool input_norm = false;
  bool output_norm = true;
  TowerNames names;
  std::vector<std::string_view> prefixes;  // of the encoder's tensors, the first that the file has
  bool rotated_pairs = false;  // rows of queries and keys lie pair by pair, as GGUF's converter turns them
  // -- to the decoder
  int merge = 1;  // patches of a side that make one embedding
  Projector projector;
  std::vector<DeepProjector> deep;
  kernels::Activation projector_activation = kernels::Activation::Gelu;
  int output_dim = 0;  // of the decoder

  int unit() const { return patch * merge; }  // pixels of a side of an embedding
};

// The tower that a config names; nothing where it names none, or none that is known.
Result<std::optional<VisionSpec>> build_vision(Config& config, Config& processor);
// Of config.json, with a tower.
std::vector<std::string_view> vision_architectures();

struct TowerNorm {
  TensorView gain, bias;
};
struct TowerLayer {
  TowerNorm attention_norm, ffn_norm;
  TensorView q_norm, k_norm;  // gains
  kernels::Weight qkv, out, up, down;
};
struct ProjectorWeights {  // of a step; empty where it has none
  kernels::Weight matrix;
  TowerNorm norm;
};
struct VisionWeights {
  kernels::Weight patches;
  std::vector<float> positions,
      class_token;  // [grid², dim], behind the class token's row where there is one; [dim]
  TowerNorm input_norm, output_norm;
  std::vector<TowerLayer> layers;
  std::vector<ProjectorWeights> projector;
  std::vector<std::vector<ProjectorWeights>> deep;
  std::vector<std::shared_ptr<void>> owners;
};

Result<VisionWeights> bind_vision(const VisionSpec& spec, const formats::TensorStore& store,
                                  kernels::Backend& backend);

// A picture as the prompt has it: text in the placeholder's place, with runs of the image token; tiles that the tower reads;
// and which of a tile's embeddings each run holds.
struct PictureParts {
  struct Run {
    size_t tile = 0;
    int first = 0, tokens = 0;
  };
  std::string text;
  std::vector<image::Image> tiles;
  std::vector<Run> runs;
};
// An error where no such picture can be: a strip far longer than it is wide.
Result<PictureParts> process_picture(const VisionSpec& spec, const image::Image& picture);
// Embeddings of one tile.
int tile_tokens(const VisionSpec& spec, int width, int height);

// Runs on any back-end. Not while a step is recorded.
class VisionTower {
 public:
  VisionTower(const VisionSpec& spec, const VisionWeights& weights, kernels::Backend& backend)
      : spec_(spec), weights_(weights), backend_(backend) {}

  struct Tile {
    const uint8_t* rgb = nullptr;  // [height, width, 3]
    int width = 0, height = 0;     // multiples of unit()
  };
  // Embeddings of each tile, [tokens, (1 + deep) output_dim], activation type, of one pass over all of them. Those of a tile
  // are the same whatever tiles are beside it.
  std::vector<kernels::Memory> encode(std::span<const Tile> tiles);
  kernels::Memory encode(const uint8_t* rgb, int width, int height) {
    const Tile tile{rgb, width, height};
    return encode({&tile, 1}).front();
  }
  // The same in parts, between which the back-end may do other work. The result is the same.
  struct Pass;  // over tiles, whose pixels outlive it
  std::shared_ptr<Pass> begin(std::span<const Tile> tiles);
  // What the next part does with its tokens. Parts of a kind and of as many tokens take about the same time.
  enum class PartKind : uint8_t {
    Embed,         // patches
    Keys,          // queries, keys and values of a layer
    WindowedRows,  // attention within windows, and the feed-forward
    WholeRows,     // the same with attention within tiles
    Project        // the projector, or one of those of further layers
  };
  static constexpr size_t kPartKinds = 5;
  struct Part {
    PartKind kind = PartKind::Embed;
    int64_t tokens = 0;  // at most
  };
  Part next_part(const Pass& pass) const;
  // Runs a part of at most so many tokens, but at least one, or those of one embedding; true: finish() is next.
  bool advance(Pass& pass, int64_t tokens);
  // REQUIRES: advance() was true. Once.
  std::vector<kernels::Memory> finish(Pass& pass);

 private:
  struct Place {
    int row = 0, column = 0;  // of a patch
  };
  struct Layout;  // of a tile's patches
  Layout lay_out(int rows, int columns) const;
  kernels::Memory patches_of(const Tile& tile, std::span<const Place> places) const;
  kernels::Memory positions_of(const Layout& layout, int64_t begin, int64_t end) const;
  void add_angles(const Layout& layout, int64_t begin, int64_t end, std::vector<float>& out) const;
  void embed_patches(const Tile& tile, const Layout& layout, TensorView x, int64_t begin, int64_t end);
  void embed(Pass& pass, int64_t begin, int64_t end);
  bool sees_whole_tiles(const Pass& pass) const;
  const std::vector<int32_t>& windows_of(const Pass& pass) const;
  void make_room_for_keys(Pass& pass);
  void make_keys(Pass& pass, int64_t begin, int64_t end);
  void keep_keys(Pass& pass, int64_t begin, int64_t end);
  void attend(const Pass& pass, TensorView out, int64_t begin, int64_t end);
  void run_rows(Pass& pass, int64_t begin, int64_t end);
  void run_part(Pass& pass, int64_t begin, int64_t end);
  void put_embeddings(Pass& pass, int64_t begin, int64_t end);
  bool begin_next_stage(Pass& pass);
  void norm(TensorView out, TensorView x, const TowerNorm& weights);
  kernels::Memory project(const Projector& steps, const std::vector<ProjectorWeights>& weights, TensorView x);
  kernels::Memory put(const std::vector<float>& values, int64_t rows, int64_t cols) const;
  kernels::Memory buffer(int64_t rows, int64_t cols) const {
    return backend_.allocate(backend_.activation_type(), {rows, cols});
  }

  const VisionSpec& spec_;
  const VisionWeights& weights_;
  kernels::Backend& backend_;
};

}  // namespace sluice::models
