// Ollama's /api, as far as it reads and generates.
#pragma once

#include "api/core/service.h"
#include "api/fields/field_table.h"

namespace sluice::api {

const RequestSchema& ollama_chat_schema();
const RequestSchema& ollama_generate_schema();
const RequestSchema& ollama_embed_schema();
const RequestSchema& ollama_embedding_schema();
const RequestSchema& ollama_show_schema();
Reply ollama_chat(const Call& call);       // POST /api/chat
Reply ollama_generate(const Call& call);   // POST /api/generate
Reply ollama_embed(const Call& call);      // POST /api/embed
Reply ollama_embedding(const Call& call);  // POST /api/embeddings, of one text
Reply ollama_version(const Call& call);    // GET /api/version
Reply ollama_tags(const Call& call);       // GET /api/tags
Reply ollama_processes(const Call& call);  // GET /api/ps
Reply ollama_show(const Call& call);       // POST /api/show

}  // namespace sluice::api
