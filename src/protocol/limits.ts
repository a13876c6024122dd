/**
 * Every number of the public interface that bounds a request, in one place, each with its reason.
 * Pure.
 */

/** `session_id` and `user`, in characters (code points, as JSON Schema counts). */
export const IDENTIFIER_MAX_CHARS = 256

/** One model slug: as long as the longest router pattern that could match it, so that no error or record grows. */
export const MODEL_MAX_CHARS = 1024

/** `metadata`: pairs, characters of a key (no brackets), characters of a value. */
export const METADATA_MAX_PAIRS = 16
export const METADATA_KEY_MAX_CHARS = 64
export const METADATA_VALUE_MAX_CHARS = 512

/** `max_tool_calls`: the ceiling, which is the default too. */
export const TOOL_STEPS_MAX = 30

/** Sampling bounds that users of this kind of API rely on. */
export const TEMPERATURE_MAX = 2
export const TOP_P_MAX = 1
export const PENALTY_MAX = 2
export const TOP_LOGPROBS_MAX = 20

/** Name of a function, a custom tool or a JSON schema: what every provider format can carry. */
export const NAME_PATTERN = '^[a-zA-Z0-9_-]{1,64}$'

/** Model lists of the routing plugins: patterns, characters of one, characters of all. */
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
/** Probability at or above which a rule counts as broken; 0 itself is not allowed, it would block everything. */
export const ALIGNMENT_THRESHOLD_MAX = 1

/** Fusion: panel size, tool steps of each panelist and of the analyst, tools of the panel. */
export const FUSION_MODELS_MAX = 8
export const FUSION_TOOL_STEPS_MAX = 16
export const FUSION_TOOLS_MAX = 8

/** Web search: results of one search. */
export const SEARCH_RESULTS_MAX = 25
/** X handles that one search may include or exclude. */
export const SEARCH_HANDLES_MAX = 20
/** Characters kept of one search result. */
export const SEARCH_RESULT_MAX_CHARS = 100_000

/** Nesting of a request; deeper than any client writes, far below what could exhaust a stack. */
export const JSON_MAX_DEPTH = 64
/**
 * Objects, arrays and fields of a request together. Time of parsing, checking and encoding goes with their number, not
 * with bytes, and the loop that spends it serves everybody else's streams too: this many cost about a tenth of a
 * second. A conversation of ten thousand messages has half of them.
 */
export const JSON_MAX_PARTS = 200_000
