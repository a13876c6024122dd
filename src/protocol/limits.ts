/**
 * Every number of the public interface that bounds a request, in one place, each with its reason.
 * Pure. Source: "Limits" of the interface notes and the field rules they refer to.
 */

/** `session_id` and `user`, in characters (code points, as JSON Schema counts). Interface, "Limits". */
export const IDENTIFIER_MAX_CHARS = 256

/** One model slug: as long as the longest router pattern that could match it, so that no error or record grows. */
export const MODEL_MAX_CHARS = 1024

/** `metadata`: pairs, characters of a key (no brackets), characters of a value. Interface, "Limits". */
export const METADATA_MAX_PAIRS = 16
export const METADATA_KEY_MAX_CHARS = 64
export const METADATA_VALUE_MAX_CHARS = 512

/** `max_tool_calls`: default and ceiling are the same number. Interface, "Limits". */
export const TOOL_STEPS_DEFAULT = 30
export const TOOL_STEPS_MAX = 30

/** Sampling bounds that users of this kind of API rely on. */
export const TEMPERATURE_MAX = 2
export const TOP_P_MAX = 1
export const PENALTY_MAX = 2
export const TOP_LOGPROBS_MAX = 20

/** Name of a function, a custom tool or a JSON schema: what every provider format can carry. */
export const NAME_MAX_CHARS = 64
export const NAME_PATTERN = '^[a-zA-Z0-9_-]{1,64}$'

/** Model lists of the routing plugins: patterns, characters of one, characters of all. Interface, "Limits". */
export const ROUTER_PATTERNS_MAX = 1024
export const ROUTER_PATTERN_MAX_CHARS = 1024
export const ROUTER_PATTERNS_TOTAL_MAX_CHARS = 65536
/** `cost_quality_tradeoff` of the auto routers, an integer from 0; 9 applies when no cost setting is given. */
export const ROUTER_TRADEOFF_MAX = 10
export const ROUTER_TRADEOFF_DEFAULT = 9
/** Candidates that the switchyard router takes from `models`. */
export const SWITCHYARD_CANDIDATES_MAX = 3

/** Alignment rules: how many, and characters of one (no line breaks). Interface, "Limits". */
export const ALIGNMENT_RULES_MAX = 128
export const ALIGNMENT_RULE_MAX_CHARS = 200
/** Provider calls repeated after a blocked turn. */
export const ALIGNMENT_RETRIES_MAX = 3
export const ALIGNMENT_RETRIES_DEFAULT = 1
/** Probability at or above which a rule counts as broken; 0 itself is not allowed, it would block everything. */
export const ALIGNMENT_THRESHOLD_MAX = 1
export const ALIGNMENT_THRESHOLD_DEFAULT = 0.7

/** Fusion: panel size, tool steps of each panelist and of the analyst, tools of the panel. Interface, "Limits". */
export const FUSION_MODELS_MAX = 8
export const FUSION_TOOL_STEPS_MAX = 16
export const FUSION_TOOL_STEPS_DEFAULT = 4
export const FUSION_TOOLS_MAX = 8

/** Web search: results of one search. */
export const SEARCH_RESULTS_MAX = 25
export const SEARCH_RESULTS_DEFAULT = 5
/** X handles that one search may include or exclude. */
export const SEARCH_HANDLES_MAX = 20
/** Characters kept of one search result. */
export const SEARCH_RESULT_MAX_CHARS = 100_000

/** End-user record: `user`, 1 to this many characters. Interface, "Limits". */
export const END_USER_MAX_CHARS = 256
/** BYOK record. Interface, "Limits". */
export const BYOK_NAME_MAX_CHARS = 255
export const BYOK_LIST_MAX = 100
/** Batch input, in bytes (200 MB, decimal). Interface, "Limits". */
export const BATCH_INPUT_MAX_BYTES = 200_000_000
export const BATCH_COMPLETION_WINDOW = '24h'

/** Nesting of a request; deeper than any client writes, far below what could exhaust a stack. */
export const JSON_MAX_DEPTH = 64
