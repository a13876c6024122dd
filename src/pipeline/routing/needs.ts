/**
 * Needs of a request, checked against the catalogue: parts that only some formats can express, kinds of input, length of
 * the prompt and of the output. Hot path. Endpoints whose rows do not state what they accept are never left out. Prompt
 * lengths are estimates: an endpoint is left out only if even the lowest estimate is too long for it, and comes after
 * the others if the likely length is too long.
 */

import { canExpress, type SpecialName, specialParts } from '../../formats/format-abilities.ts'
import { DIALECT_ABILITIES } from '../../protocol/dialect-abilities.ts'
import { type Endpoint, textFormat } from '../../protocol/provider.ts'
import { supportsParameter, usedParameters } from '../../providers/parameters.ts'
import type { Filter, ModelCandidates } from './candidate.ts'
import type { RankInput } from './rank-input.ts'

/** If some endpoints honour these parameters, only those are called, even without `require_parameters`. */
const PREFERRED_PARAMETERS = ['tools', 'response_format', 'verbosity'] as const

/** The modality of a content part, by its type. */
const MODALITY_BY_PART: Readonly<Record<string, string>> = {
  input_image: 'image',
  input_file: 'file',
  input_audio: 'audio',
  input_video: 'video',
}

const EMPTY_LIST: readonly never[] = []

/** The needs of one request. Each is computed when a model first asks for it. */
export class Needs {
  /** False if lengths and kinds of input are not compared. */
  readonly isCompared: boolean
  /** Filters for parts of the request that only some formats can express; usually none. */
  readonly special: readonly SpecialFilter[]
  /** Parameters that an endpoint should honour. */
  readonly usedParameters: readonly string[]
  readonly #input: RankInput
  #modalities: readonly string[] | null = null
  #tokens: number | null = null
  #minTokens: number | null = null
  /** True once endpoints are admitted for which the prompt is cut. */
  #admitsCuts = false
  #couldCut = false
  /** The longest context that was too short, in tokens. */
  longestRefused = 0

  /** Routers and plans compare lengths and kinds of input themselves (`isCompared` is false); embeddings never do. */
  constructor(input: RankInput, isCompared: boolean) {
    const { embeds } = DIALECT_ABILITIES[input.dialect]
    this.#input = input
    this.isCompared = isCompared && !embeds
    this.special = embeds ? EMPTY_LIST : specialFilters(input)
    this.usedParameters = usedParameters(input.request, PREFERRED_PARAMETERS)
    // Prices of embeddings do not depend on the length.
    if (embeds) this.#tokens = 0
  }

  /** Output tokens that the caller requests; 0 if unspecified. */
  get output(): number {
    return this.#input.request.max_output_tokens ?? 0
  }

  /** Approximate tokens of the input. */
  get tokens(): number {
    this.#tokens ??= this.#input.routing.inputTokens?.(this.#input.request) ?? 0
    return this.#tokens
  }

  /** Kinds of input other than text that no plugin turns into text. */
  get modalities(): readonly string[] {
    this.#modalities ??= modalitiesIn(this.#input)
    return this.#modalities
  }

  /**
   * True once, if an endpoint was left out because the prompt would be cut for it; from then on such endpoints are
   * admitted. Called when no endpoint is left that accepts the whole prompt.
   */
  admitCuts(): boolean {
    if (this.#admitsCuts) return false
    this.#admitsCuts = this.#couldCut
    return this.#admitsCuts
  }

  /** True if the request has a kind of input that the model does not state it accepts. */
  hasOtherThan({ acceptedInput }: ModelCandidates): boolean {
    if (typeof this.#input.request.input === 'string' || acceptedInput === null) return false
    return this.modalities.some(modality => !acceptedInput.includes(modality))
  }

  /** True if the prompt may be too long for some endpoint of the model. */
  mayExceed({ leastContext, capsMessages }: ModelCandidates): boolean {
    const { plugins, request, routing } = this.#input
    const { inputTokens, isInputBelow } = routing
    if (capsMessages && plugins !== null) return true
    if (leastContext === Number.POSITIVE_INFINITY || inputTokens === undefined) return false
    // A plugin reserves space for the answer itself, at most half of the context.
    const maxRoom = plugins === null ? leastContext : leastContext / 2
    const room = Math.min(leastContext - this.output, maxRoom)
    return isInputBelow === undefined ? this.tokens > room : !isInputBelow(request, room)
  }

  /**
   * False if even the lowest estimate of the prompt is too long for the endpoint, or if a plugin would cut the prompt
   * and cuts are not admitted yet.
   */
  hasRoom(endpoint: Endpoint): boolean {
    const { contextLength, maxOutputTokens } = endpoint
    const { isLimited, plugins, request, routing } = this.#input
    // The output of a caller with spending limits is capped to what the endpoint can write.
    const output = isLimited ? Math.min(this.output, maxOutputTokens ?? this.output) : this.output
    if (plugins?.fitting(endpoint, request) === 'cut') {
      this.longestRefused = Math.max(this.longestRefused, contextLength ?? 0)
      if (output >= (contextLength ?? Number.POSITIVE_INFINITY)) return false
      this.#couldCut = true
      return this.#admitsCuts
    }
    if (contextLength === null) return true
    const { inputTokens, leastTokens = inputTokens } = routing
    this.#minTokens ??= leastTokens?.(request) ?? 0
    if (this.#minTokens + output <= contextLength) return true
    this.longestRefused = Math.max(this.longestRefused, contextLength)
    return false
  }

  /** True if the endpoint can probably take the whole request. */
  fits({ contextLength, maxOutputTokens }: Endpoint): boolean {
    if (maxOutputTokens !== null && this.output > maxOutputTokens) return false
    if (contextLength === null || this.#input.routing.inputTokens === undefined) return true
    return this.tokens + this.output <= contextLength
  }
}

function modalitiesIn({ plugins, request: { input } }: RankInput): readonly string[] {
  if (typeof input === 'string') return EMPTY_LIST
  let modalities: Set<string> | null = null
  for (const item of input) {
    for (const parts of partsOf(item)) {
      for (const part of parts) {
        const modality = MODALITY_BY_PART[part.type ?? '']
        if (modality === undefined || plugins?.reads(part) === true) continue
        modalities ??= new Set()
        modalities.add(modality)
      }
    }
  }
  return modalities === null ? EMPTY_LIST : [...modalities]
}

interface Part {
  readonly type?: string
}

/** The parts of a message, and the parts of a tool's output. */
function* partsOf(item: object): Generator<readonly Part[]> {
  const { content, output } = item as { readonly content?: unknown; readonly output?: unknown }
  if (Array.isArray(content)) yield content as readonly Part[]
  if (Array.isArray(output)) yield output as readonly Part[]
}

// Parts of a request that only some formats can express (formats/format-abilities.ts).

interface SpecialFilter extends Filter {
  /** Message for the caller if no endpoint is left. */
  readonly message: string
}

const RESPONSES_ONLY = 'can be sent only to providers that speak the Responses format'

/** The advice for each part. */
const ADVICE_BY_PART: Readonly<Record<SpecialName, string>> = {
  prompt:
    'a stored prompt belongs to an account, so it needs a BYOK credential of the workspace for a provider that speaks the Responses format; no such provider serves this model. Send its text in instructions and input instead',
  modalities:
    'no provider of this model generates images through this gateway. Choose a model whose output_modalities include image',
  agent_message: `${RESPONSES_ONLY}, but none of them serves this model. Send the text as a message instead`,
  context_compaction: `${RESPONSES_ONLY}, but none of them serves this model. Send the conversation itself instead`,
  configuration_update: 'no provider of this model accepts a reasoning effort. Leave the item out',
  mcp_servers:
    'can be sent only to providers that speak the Messages format, but none of them serves this model. Use the mcp tool of POST /v1/responses or /v1/chat/completions instead',
  computer_use:
    'only providers that speak the Responses format or the Messages format have computer use, but none of them serves this model. Choose a model by OpenAI or Anthropic',
  own_kind:
    'is known only to providers that speak the Gemini format, but none of them serves this model. Leave it out, or choose a model by Google',
  context_management:
    'no provider of this model can summarize the conversation. Leave these edits out, or use the context-compression plugin',
}

function specialFilters({ dialect, request }: RankInput): readonly SpecialFilter[] {
  const parts = specialParts(request, dialect)
  if (parts.length === 0) return EMPTY_LIST
  return parts.map(({ special, path }) => ({
    excludedBy: special,
    message: `${path}: ${ADVICE_BY_PART[special]}`,
    admits: ({ endpoint, credential }) =>
      (special !== 'prompt' || credential !== null) &&
      (special !== 'configuration_update' || supportsParameter(endpoint, 'reasoning')) &&
      canExpress(textFormat(endpoint), special, dialect),
  }))
}
