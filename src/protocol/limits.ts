/** Limits of the public interface that several files need, and defaults that belong to them. Pure. */

/** `session_id` and `user`, in characters (code points, as JSON Schema counts). */
export const IDENTIFIER_MAX_CHARS = 256
/** Default share of an end user of an API key at its limit; the minimum. */
export const END_USER_WEIGHT_DEFAULT = 1
export const END_USER_WEIGHT_MAX = 100

/** One model slug: as long as the longest router pattern that could match it, so that no error or record grows. */
export const MODEL_MAX_CHARS = 1024

/** Entries in `models`. Other requests wait while each entry is looked up and routed. Real lists are far shorter. */
export const MODELS_MAX = 256

/**
 * `provider`: names in one list, and quantizations; characters of a name. Each is compared with every endpoint of every
 * model of the request; there are fewer providers.
 */
export const PREFERENCES_MAX = 256
export const PROVIDER_NAME_MAX_CHARS = 128

/** `metadata`: pairs, characters of a key (no brackets), characters of a value. */
export const METADATA_MAX_PAIRS = 16
export const METADATA_KEY_MAX_CHARS = 64
export const METADATA_VALUE_MAX_CHARS = 512

/** `max_tool_calls`: the maximum, and the default. */
export const TOOL_STEPS_MAX = 30

/** Sampling bounds that users of this kind of API rely on. */
export const TEMPERATURE_MAX = 2
export const TOP_P_MAX = 1
/** Server tools in one request; each is a function that the model has to read. */
export const SERVER_TOOLS_MAX = 64
/** Tools in one list of names: several times what a server lists. */
export const NAMED_TOOLS_MAX = 1_024
/** Stop sequences in one request. */
export const STOPS_MAX = 4
export const PENALTY_MAX = 2
export const TOP_LOGPROBS_MAX = 20

/** The longest name that every provider takes. */
export const NAME_MAX_CHARS = 64
/** Name of a namespace or a JSON schema: what every provider format can carry. */
export const NAME_PATTERN = '^[a-zA-Z0-9_-]{1,64}$'
/** `NAME_PATTERN` in words, for errors. */
export const NAME_DESCRIPTION = 'a name of 1 to 64 letters, digits, underscores and hyphens'
/** Name of a function or a custom tool: what any API takes. A provider that takes less gets another one. */
export const TOOL_NAME_PATTERN = '^[a-zA-Z0-9_.:-]{1,128}$'
export const TOOL_NAME_DESCRIPTION =
  'a name of 1 to 128 letters, digits, dots, colons, underscores and hyphens'

/** Model lists of routing plugins: patterns, characters of one, characters of all. */
export const ROUTER_PATTERNS_MAX = 1024
export const ROUTER_PATTERN_MAX_CHARS = 1024
export const ROUTER_PATTERNS_TOTAL_MAX_CHARS = 65536
/** `cost_quality_tradeoff` of the auto routers, an integer from 0. */
export const ROUTER_TRADEOFF_MAX = 10

/** Alignment rules: how many, and characters of one (no line breaks). */
export const ALIGNMENT_RULES_MAX = 128
export const ALIGNMENT_RULE_MAX_CHARS = 200
/** Provider calls repeated after a blocked turn. */
export const ALIGNMENT_RETRIES_MAX = 3
/** Probability from which a rule counts as broken; 0 is not allowed, because it would block everything. */
export const ALIGNMENT_THRESHOLD_MAX = 1
export const ALIGNMENT_RETRIES_DEFAULT = 1
export const ALIGNMENT_THRESHOLD_DEFAULT = 0.7

/** Passages in the result of one file search. */
export const FILE_RESULTS_MAX = 50
/** Fusion: panel size, tool steps of each panelist and of the analyst, tools of the panel. */
export const FUSION_MODELS_MAX = 8
export const FUSION_TOOL_STEPS_MAX = 16
export const FUSION_TOOLS_MAX = 8

/** Web search: results of one search. */
export const SEARCH_RESULTS_MAX = 25
/** X handles that one search may include or exclude. */
export const SEARCH_HANDLES_MAX = 20
/** Characters of one search result. */
export const SEARCH_RESULT_MAX_CHARS = 100_000

/** Nesting of a request; deeper than any client writes, far below what could exhaust a stack. */
export const JSON_MAX_DEPTH = 64
/**
 * Objects, arrays and fields of a request together. The time of parsing, checking and encoding depends on their number
 * and not on bytes, and it blocks other streams of the thread: this many take about a tenth of a second. A conversation
 * of ten thousand messages has half of them.
 */
export const JSON_MAX_PARTS = 200_000
/**
 * Commas of a request outside texts, which approximate the number of plain values: a number costs less than an object,
 * but millions of them block the event loop too. The longest list of token ids that a provider embeds has a third of
 * these.
 */
export const JSON_MAX_COMMAS = 1_000_000

/** Levels of nesting in a provider's reply or frame: twice as many as in a request, which it may quote. */
export const REPLY_MAX_DEPTH = 2 * JSON_MAX_DEPTH
/** Objects, arrays and fields, and commas, of a reply or a frame: the limits of a request, for the same reason. */
export const REPLY_MAX_PARTS = JSON_MAX_PARTS
export const REPLY_MAX_COMMAS = JSON_MAX_COMMAS
/** A reply with log probabilities: twenty alternatives of four thousand tokens, each an object with its bytes. */
export const LOGPROBS_MAX_PARTS = 500_000
export const LOGPROBS_MAX_COMMAS = 2_000_000

/** Elements of one page of a list: the maximum, and the default of most lists. */
export const PAGE_MAX = 100
export const PAGE_DEFAULT = 50
/** The default of lists of files and batches: that of the APIs which their clients know. */
export const CLIENT_LIST_DEFAULT = 20
/** Models on one page of a list. */
export const MODELS_PAGE_MAX = 1000
/** A text that models are searched for. */
export const MODEL_SEARCH_MAX_CHARS = 256
/** Visible ASCII. */
export const IDEMPOTENCY_KEY_PATTERN = '^[\\x21-\\x7e]{1,255}$'

/** Characters of the names of keys, credentials and workspaces, which people read in lists. */
export const RECORD_NAME_MAX_CHARS = 255
/** Maximum time that old secrets of an API key stay valid after a rotation: 30 days. */
export const KEY_OVERLAP_MAX_SECONDS = 30 * 86_400
/** Maximum valid secrets of one API key: daily rotation with an overlap of a week needs eight. */
export const KEY_SECRETS_MAX = 10
export const WORKSPACE_NAME_MAX_CHARS = 100
export const WORKSPACE_DESCRIPTION_MAX_CHARS = 500
/** At most 50 characters: words of lower-case letters and digits with single hyphens between them. */
export const WORKSPACE_SLUG_PATTERN = '^(?=.{1,50}$)[a-z0-9]+(-[a-z0-9]+)*$'
/** Characters of the note of a credit entry. */
export const CREDIT_NOTE_MAX_CHARS = 500
/** Characters of the name and the description of a guardrail. */
export const GUARDRAIL_NAME_MAX_CHARS = 200
export const GUARDRAIL_DESCRIPTION_MAX_CHARS = 1000
/** Models or providers in one list of a guardrail: far more than people list one by one. */
export const GUARDRAIL_LIST_MAX_ITEMS = 1000
/** Characters of a text in a guardrail check: a few pages. */
export const GUARDRAIL_CHECK_MAX_CHARS = 20_000
/** User patterns on each side; characters of one, of its label, and of all patterns of a guardrail together. */
export const FILTERS_MAX_ITEMS = 100
export const FILTER_PATTERN_MAX_CHARS = 100_000
export const FILTER_LABEL_MAX_CHARS = 100
export const FILTER_PATTERNS_TOTAL_MAX_CHARS = 200_000
/** Positions that read a character, in all patterns of one side with repeats written out: two hundred per pattern. */
export const FILTERS_MAX_POSITIONS = 20_000
/** Output that a guardrail scans together, in bytes, and the part of it that is scanned again with the next. */
export const OUTPUT_WINDOW_MIN_BYTES = 256
export const OUTPUT_WINDOW_MAX_BYTES = 16_384
export const OUTPUT_WINDOW_DEFAULT_BYTES = 1024
export const OUTPUT_OVERLAP_DEFAULT_BYTES = 256
/** API keys or members that one operation assigns a guardrail to. */
export const ASSIGNEES_MAX_ITEMS = 100
/**
 * Maximum body of an inference request: 20 MiB. A full context of text is a few megabytes, and images or files in
 * base64 must fit too; more belongs behind a URL.
 */
export const INFERENCE_BODY_MAX_BYTES = 20 * 1024 * 1024
/** Maximum body of a guardrail: one pattern of the greatest length with every character escaped, with a margin. */
export const GUARDRAIL_BODY_MAX_BYTES = 2 * 1024 * 1024
/** Maximum body of a management operation: lists of 100 values, with a margin. */
export const MANAGEMENT_BODY_MAX_BYTES = 256 * 1024

/** A document or a web page whose text is read, and the pages of a PDF: more than any model reads. */
export const DOCUMENT_MAX_MIB = 50
export const DOCUMENT_MAX_BYTES = DOCUMENT_MAX_MIB * 1024 * 1024
export const DOCUMENT_MAX_PAGES = 2_000
/** How long a batch may take. `completion_window` and `expires_at` follow from it. */
export const BATCH_WINDOW_HOURS = 24
export const BATCH_WINDOW = `${BATCH_WINDOW_HOURS}h` as const

/** The smallest part of a token estimate that a text really has, for texts of long words and white space. */
export const MIN_TOKENS_SHARE = 0.75
/** Largest context of an endpoint, in tokens, for which long inputs are compressed by default. */
export const SMALL_CONTEXT_TOKENS = 8_192
/**
 * Output tokens that are assumed if the caller sets no limit. Most answers are shorter; more would refuse callers with
 * enough money left.
 */
export const ASSUMED_OUTPUT_TOKENS = 1_024

/**
 * Inputs of one embeddings request: as many as the most generous provider accepts, so that no client has to split more
 * often.
 */
export const EMBEDDING_INPUTS_MAX = 2_048
/** Numbers of one vector: several times what the widest known model creates. */
export const EMBEDDING_DIMENSIONS_MAX = 16_384
/** The largest accepted token id; vocabularies have a few hundred thousand words. */
export const TOKEN_ID_MAX = 2 ** 31 - 1
/** `input_type`: a word without digits, so that it cannot carry a text past guardrails. */
export const INPUT_TYPE_PATTERN = '^[A-Za-z][A-Za-z_-]{0,63}$'
/** Bytes of one encoded vector: enough for EMBEDDING_DIMENSIONS_MAX numbers with all their digits, and blanks. */
export const VECTOR_MAX_BYTES = 512 * 1024
/** Bytes of a whole reply with vectors: slightly less than a transport reads, so that the error can say what to do. */
export const EMBEDDINGS_REPLY_MAX_BYTES = 60 * 1024 * 1024
/** Bytes of such a reply besides its vectors: some providers repeat the input texts. */
export const EMBEDDINGS_EXTRA_MAX_BYTES = 24 * 1024 * 1024
