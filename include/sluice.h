/* The C interface of sluice: load a model, answer prompts, make vectors, turn text into tokens and back.
 *
 * Every function that can fail returns a sluice_status; sluice_error_message() has the sentence for people. Nothing that a
 * model file holds or a caller passes ends the process; an answer that fails, fails alone. Model files are mapped: one that
 * is made shorter while it is loaded ends the process with SIGBUS.
 *
 * Threads: sessions are independent of each other. Any number of threads may call the functions of one session at once;
 * their answers are computed in one batch. sluice_unload() is called when no other call of the session runs.
 *
 * Options are arrays of "name=value" strings that end with NULL; NULL stands for none. Names and values are those of the
 * program's flags ("sluice run --help"), without dashes in front; switches take "on" and "off". An unknown name is an
 * error. Strings are UTF-8 and end with a zero byte. */
#ifndef SLUICE_H
#define SLUICE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sluice_status {
  SLUICE_OK = 0,
  SLUICE_INVALID_ARGUMENT = 1, /* a null pointer, an unknown option, a value outside its range */
  SLUICE_NOT_FOUND = 2,        /* a file or model does not exist */
  SLUICE_CORRUPT = 3,          /* a file breaks the rules of its format */
  SLUICE_UNSUPPORTED = 4,      /* well formed, but not something this build or model can do */
  SLUICE_LIMIT_EXCEEDED = 5,   /* a prompt longer than the context, for example */
  SLUICE_IO = 6,               /* the operating system refused */
  SLUICE_UNAVAILABLE = 7,      /* a device, memory or a place in the queue is not there */
  SLUICE_NUMERICAL = 8,        /* a computation gave values that are no numbers */
  SLUICE_INTERNAL = 9          /* a fault of sluice, or an exception of a callback */
} sluice_status;

/* "0.1.0"; never freed. */
const char* sluice_version(void);

/* What the last call of this thread that failed says: it names the thing, its value and the limit. Valid until the thread's
 * next call that fails; "" before the first. */
const char* sluice_error_message(void);

typedef enum sluice_log_level {
  SLUICE_LOG_DEBUG = 0,
  SLUICE_LOG_INFO = 1,
  SLUICE_LOG_WARNING = 2,
  SLUICE_LOG_ERROR = 3,
  SLUICE_LOG_OFF = 4
} sluice_log_level;

/* The least level that is written to stderr, for the whole process; SLUICE_LOG_INFO until it is called. */
void sluice_set_log_level(sluice_log_level level);

typedef struct sluice_session sluice_session;

/* Opens a model: a file, a folder, or a name as "sluice list" shows them; NULL or "" is the default model. Options are the
 * engine's: "ctx-size=4096", "threads=4", "device=cuda", "max-seqs=8" and so on. */
sluice_status sluice_load(const char* model, const char* const* options, sluice_session** session);
/* Frees the session; NULL is allowed. */
void sluice_unload(sluice_session* session);

/* Gets the text in pieces of whole characters: `size` bytes, not ended by a zero byte. While nothing comes it is called with
 * size 0 about twenty times a second. 0 goes on, anything else ends the answer. */
typedef int (*sluice_text_callback)(void* user, const char* text, size_t size);

/* Where text goes; called on the thread that asked for it. */
typedef struct sluice_output {
  sluice_text_callback on_text; /* may be NULL */
  void* user;
} sluice_output;

typedef enum sluice_end {
  SLUICE_END_STOP = 0,     /* the model ended it, or a stop string */
  SLUICE_END_LENGTH = 1,   /* max-tokens, or the context is full */
  SLUICE_END_CANCELLED = 2 /* by the callback */
} sluice_end;

typedef struct sluice_answer {
  sluice_end end;
  int32_t prompt_tokens, cached_tokens, generated_tokens;
  double first_token_seconds; /* from the call to the first token */
  double total_seconds;
} sluice_answer;

/* Answers a prompt. It goes through the model's chat template, where there is one and "raw=on" is not among the options;
 * "system=TEXT" is the message before it. Further options: max-tokens, temperature (0: greedy), top-k, top-p, min-p,
 * repeat-penalty, seed, stop (several times, if needed), ignore-eos. `output` and `answer` may be NULL. */
sluice_status sluice_generate(sluice_session* session, const char* prompt, const char* const* options,
                              const sluice_output* output, sluice_answer* answer);

typedef struct sluice_message {
  const char* role; /* "system", "user", "assistant" */
  const char* content;
} sluice_message;

typedef struct sluice_conversation {
  const sluice_message* messages;
  size_t count;
} sluice_conversation;

/* Answers a conversation through the model's chat template; options as above without raw and system. */
sluice_status sluice_chat(sluice_session* session, const sluice_conversation* conversation,
                          const char* const* options, const sluice_output* output, sluice_answer* answer);

/* The vector of a text. Options: "pooling=mean" or "last", "normalize=on" or "off". `*values` is freed with sluice_free(). */
sluice_status sluice_embed(sluice_session* session, const char* text, const char* const* options,
                           float** values, size_t* count);

/* Text to tokens and back. Options: "special=on" (text that spells a special token becomes that token), "add-special=on" (the
 * tokens that the model expects around a text); back: "skip-special=on". Results are freed with sluice_free(); a text ends
 * with a zero byte. */
sluice_status sluice_tokenize(sluice_session* session, const char* text, const char* const* options,
                              int32_t** tokens, size_t* count);
sluice_status sluice_detokenize(sluice_session* session, const int32_t* tokens, size_t count,
                                const char* const* options, char** text);

/* Frees what a function above gave; NULL is allowed. */
void sluice_free(void* pointer);

#ifdef __cplusplus
}
#endif

#endif
