/**
 * Masks: the placeholders of one request, such as `[EMAIL_1]`, and the originals that come back in its answer. Provider,
 * tools and all that is kept see the placeholders; only what leaves for the caller has the originals. Pure. Every method
 * takes time linear in its text.
 *
 * Example. `give('EMAIL', 'ann@example.org')` returns `[EMAIL_1]`. Then
 *
 *     {"type":"function_call","call_id":"[EMAIL_1]","arguments":"{\"to\":\"[EMAIL_1]\"}"}
 *
 * becomes a call to ann@example.org. Its id stays, because a client sends ids back unread, and guardrails do not search
 * them: a provider that puts a placeholder there must not learn its original.
 */

/** The longest placeholder. */
const PLACEHOLDER_MAX_CHARS = 64
const MAX_PLACEHOLDER_NUMBER = 9_999
/** The longest kind that leaves room for brackets and a number. */
const KIND_MAX_CHARS = PLACEHOLDER_MAX_CHARS - '[_]'.length - String(MAX_PLACEHOLDER_NUMBER).length
const KIND_PATTERN = /^[A-Z0-9_]+$/
const PLACEHOLDER_PATTERN = /\[([A-Z0-9_]+)_[1-9]\d{0,3}\]/g
/** The beginning of a placeholder at the end of a text. */
const PARTIAL_PLACEHOLDER = /^\[[A-Z0-9_]*$/

/** Fields that are not text. Clients send most of them back, and guardrails do not search them there. */
const NON_TEXT_FIELDS: ReadonlySet<string> = new Set(
  `id type object model role status phase name namespace server_label index finish_reason native_finish_reason
  stop_reason stop_sequence call_id item_id tool_call_id tool_use_id tool_id file_id container_id subagent_id
  approval_request_id previous_response_id response_id responseId modelVersion format hash signature thoughtSignature
  data encrypted_content encrypted_index encrypted_stdout service_tier system_fingerprint provider user
  safety_identifier prompt_cache_key session_id mimeType media_type finishReason`
    .trim()
    .split(/\s+/),
)
/** Fields of an answer that the gateway fills itself, without text of a model. */
const GATEWAY_FIELDS: ReadonlySet<string> = new Set(['gateway_metadata', 'debug', 'usage', 'usageMetadata'])
/** Fields whose text is JSON. */
const JSON_TEXT_FIELDS: ReadonlySet<string> = new Set(['arguments', 'partial_json'])
/** Events whose `delta` is a piece of JSON. */
const JSON_DELTA_EVENTS: ReadonlySet<unknown> = new Set([
  'response.function_call_arguments.delta',
  'response.mcp_call_arguments.delta',
])
/** The model chose the names of the fields below these, so every string there is text. */
const FREE_FORM_FIELDS: ReadonlySet<string> = new Set(['arguments', 'args', 'input', 'env', 'environment'])

/** The kind that the placeholders of a label have; null if the label cannot be a kind. */
export function kindOf(label: string): string | null {
  return label.length <= KIND_MAX_CHARS && KIND_PATTERN.test(label) ? label : null
}

/** A text of the form of a placeholder, and its place: from `start` to before `end`. */
interface PlacedPlaceholder {
  readonly token: string
  readonly kind: string
  readonly start: number
  readonly end: number
}

/** All texts that look like a placeholder, even if the gateway did not write them. */
export function placeholdersIn(text: string): readonly PlacedPlaceholder[] {
  if (!text.includes('[')) return []
  const placeholders: PlacedPlaceholder[] = []
  for (const { 0: token, 1: kind = '', index: start } of text.matchAll(PLACEHOLDER_PATTERN))
    if (token.length <= PLACEHOLDER_MAX_CHARS)
      placeholders.push({ token, kind, start, end: start + token.length })
  return placeholders
}

export class Masks {
  /** Keyed by kind and value. */
  readonly #tokens = new Map<string, string>()
  /** The original of each placeholder; a placeholder that must stay is its own. */
  readonly #originals = new Map<string, string | (() => string | null)>()
  /** The number after the last one of each kind. */
  readonly #nextNumbers = new Map<string, number>()
  #longest = 0

  get isEmpty(): boolean {
    return this.#originals.size === 0
  }

  /** The placeholder of a value: the same for the same value. Null if the numbers of its kind are used up. */
  give(kind: string, value: string): string | null {
    const existingToken = this.#tokens.get(keyOf(kind, value))
    if (existingToken !== undefined) return existingToken
    for (let number = this.#nextNumbers.get(kind) ?? 1; number <= MAX_PLACEHOLDER_NUMBER; number++) {
      const token = `[${kind}_${number}]`
      if (this.#originals.has(token)) continue
      this.#nextNumbers.set(kind, number + 1)
      this.take(kind, value, token)
      return token
    }
    return null
  }

  /** The placeholder that a value has; null if it has none. */
  tokenOf(kind: string, value: string): string | null {
    return this.#tokens.get(keyOf(kind, value)) ?? null
  }

  /**
   * Reserves a text of the caller that looks like a placeholder, so that no value gets it. If a value already has it, the
   * text gets a placeholder of its own.
   */
  reserve(kind: string, token: string): void {
    if (this.#tokens.has(keyOf(kind, token))) return
    if (this.#originals.has(token)) this.give(kind, token)
    else this.take(kind, token, token)
  }

  /** Makes this text the placeholder of a value. */
  take(kind: string, value: string, token: string): void {
    this.#tokens.set(keyOf(kind, value), token)
    this.learn(token, value)
  }

  /** Stores the original of a placeholder: a function, if it is opened only once a model writes the placeholder. */
  learn(token: string, original: string | (() => string | null)): void {
    this.#originals.set(token, original)
    this.#longest = Math.max(this.#longest, token.length)
  }

  /** Keeps the placeholder of a value in answers, instead of the original. */
  withhold(token: string): void {
    this.#originals.set(token, token)
  }

  /** Characters at the end of a piece of a text that may be the beginning of a placeholder. */
  partialLength(piece: string): number {
    const start = piece.lastIndexOf('[')
    const length = piece.length - start
    return start === -1 || length >= this.#longest || !PARTIAL_PLACEHOLDER.test(piece.slice(start))
      ? 0
      : length
  }

  /** True if the text has a placeholder whose original is not the placeholder itself. */
  isIn(text: string): boolean {
    if (!text.includes('[')) return false
    for (const [token] of text.matchAll(PLACEHOLDER_PATTERN)) {
      const original = this.#originals.get(token)
      if (original !== undefined && original !== token) return true
    }
    return false
  }

  /** The text with the originals in place of their placeholders. */
  unmask(text: string): string {
    return text.includes('[') ? text.replace(PLACEHOLDER_PATTERN, token => this.#originalOf(token)) : text
  }

  /** JSON text, or a piece of it, with the originals inside its strings. */
  unmaskedJson(json: string): string {
    if (!json.includes('[')) return json
    return json.replace(PLACEHOLDER_PATTERN, token => {
      const original = this.#originalOf(token)
      return original === token ? token : JSON.stringify(original).slice(1, -1)
    })
  }

  /** A document of an answer, or an event, with the originals in its texts. Unchanged parts are shared. */
  unmaskedIn(document: unknown): unknown {
    return this.#value(document, '', false, false)
  }

  /** Frames of a stream, whose data is JSON on one line, with the originals in their texts. */
  unmaskedFrames(frames: string): string {
    if (!this.isIn(frames)) return frames
    return frames
      .split('\n')
      .map(line => (this.isIn(line) ? this.#line(line) : line))
      .join('\n')
  }

  #line(line: string): string {
    const start = line.indexOf('{')
    const end = line.lastIndexOf('}') + 1
    try {
      const data = this.unmaskedIn(JSON.parse(line.slice(start, end)))
      return line.slice(0, start) + JSON.stringify(data) + line.slice(end)
    } catch {
      // Not a document: it stays unchanged.
      return line
    }
  }

  #originalOf(token: string): string {
    const original = this.#originals.get(token)
    if (typeof original !== 'function') return original ?? token
    const resolvedOriginal = original() ?? token
    this.#originals.set(token, resolvedOriginal)
    return resolvedOriginal
  }

  #value(value: unknown, key: string, isJson: boolean, isFreeForm: boolean): unknown {
    if (typeof value === 'string') {
      if (!isFreeForm && NON_TEXT_FIELDS.has(key)) return value
      return isJson ? this.unmaskedJson(value) : this.unmask(value)
    }
    if (typeof value !== 'object' || value === null) return value
    if (Array.isArray(value)) {
      const list = value.map(element => this.#value(element, key, isJson, isFreeForm))
      return list.some((element, index) => element !== value[index]) ? list : value
    }
    const fields = value as Readonly<Record<string, unknown>>
    const isJsonDelta = JSON_DELTA_EVENTS.has(fields['type'])
    let changedFields: Record<string, unknown> | null = null
    for (const [name, fieldValue] of Object.entries(fields)) {
      if (!isFreeForm && GATEWAY_FIELDS.has(name)) continue
      const isText = !isFreeForm && (JSON_TEXT_FIELDS.has(name) || (isJsonDelta && name === 'delta'))
      const unmasked = this.#value(fieldValue, name, isText, isFreeForm || FREE_FORM_FIELDS.has(name))
      if (unmasked === fieldValue) continue
      changedFields ??= { ...fields }
      changedFields[name] = unmasked
    }
    return changedFields ?? value
  }
}

function keyOf(kind: string, value: string): string {
  return `${kind} ${value}`
}
