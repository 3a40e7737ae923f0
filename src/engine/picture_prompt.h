// Pictures in prompts: what a model's processor makes of them, and where that goes among the tokens.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "chat/chat_template.h"
#include "request/request.h"

namespace sluice::engine {

struct Picture {
  // In the placeholder's place: runs of the picture token, and text between them.
  std::string text;
  struct Run {
    std::shared_ptr<const request::PromptImage> image;
    int first = 0, tokens = 0;  // which of the image's embeddings
    int columns = 0;            // embeddings of a row of the image
  };
  std::vector<Run> runs;
};

// How a model's prompts have pictures.
struct PictureStyle {
  std::string placeholder;      // what the chat template writes for one
  Token token = -1;             // stands for one embedding
  bool bidirectional = false;   // as in request::EmbeddingSpan
  bool grid_positions = false;  // an embedding's rotary positions are those of its row and column
};

// Thread-safe.
class PictureReader {
 public:
  virtual ~PictureReader() = default;
  virtual const PictureStyle& style() const = 0;
  // From a file's bytes. Errors are those of the file, or say why the model reads no pictures.
  virtual Result<Picture> read(std::string_view file) const = 0;
};

// Puts the texts of the pictures in the place of the placeholders that the template wrote; what a user typed is left alone.
Status insert_pictures(chat::Rendering& rendering, std::string_view placeholder,
                       std::span<const Picture> pictures);

// Gives the runs of the token in the request's prompt their embeddings, in order, and all tokens their positions.
Status add_picture_spans(request::Request& request, const PictureStyle& style,
                         std::span<const Picture> pictures);

}  // namespace sluice::engine
