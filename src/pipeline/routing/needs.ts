/**
 * Requirements of a request, checked against the catalogue: kinds of input, prompt length, output length. Pure. Hot
 * path. Endpoints whose rows do not state what they accept are never left out. Prompt lengths are estimates: an
 * endpoint is left out only if even the lowest estimate is too long for it, and comes after the others if the likely
 * length is too long.
 */

import type { Endpoint } from '../../protocol/provider.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { Filter } from './filters.ts'
import type { ModelCandidates } from './shared-candidates.ts'

/** Functions that measure a request. */
export interface Measures {
  /** Approximate tokens of the input. Absent: lengths are not compared. */
  readonly inputTokens?: ((request: ResponsesRequest) => number) | undefined
  /** Minimum tokens of the input. Default: `inputTokens`. */
  readonly leastTokens?: ((request: ResponsesRequest) => number) | undefined
  /**
   * True if `inputTokens` is certain to be at most this number; costs next to nothing. Default: `inputTokens` is
   * compared.
   */
  readonly isInputBelow?: ((request: ResponsesRequest, tokens: number) => boolean) | undefined
}

/** The plugins of a request that can make it fit an endpoint. */
export interface FittingPlugins {
  /** `cut`: a plugin makes the prompt fit this endpoint. */
  fitting(endpoint: Endpoint, prompt: ResponsesRequest): 'whole' | 'cut' | 'refused'
  /** True if a plugin turns this part of the input into text. */
  reads(part: object): boolean
}

export const CONTEXT_LENGTH = 'context_length'
export const MAX_OUTPUT_TOKENS = 'max_output_tokens'
export const INPUT_MODALITIES = 'input_modalities'

/** The modality of a content part, by its type. */
const MODALITIES: Readonly<Record<string, string>> = {
  input_image: 'image',
  input_file: 'file',
  input_audio: 'audio',
  input_video: 'video',
}

const NONE: readonly never[] = []
const NOBODY = (): boolean => false

/** The needs of one request. Each is computed when a model first asks for it. */
export class Needs {
  readonly #request: ResponsesRequest
  readonly #measures: Measures
  readonly #plugins: FittingPlugins | null
  readonly #isCapped: boolean
  #modalities: readonly string[] | null = null
  #tokens: number | null = null
  #least: number | null = null
  /** True once endpoints are admitted for which the prompt is cut. */
  #cuts = false
  #couldCut = false
  /** The longest context that was too short, in tokens. */
  longestRefused = 0

  /** `isCapped`: the caller has spending limits, so its output is capped to what the endpoint can write. */
  constructor(
    request: ResponsesRequest,
    measures: Measures,
    plugins: FittingPlugins | null,
    isCapped: boolean,
  ) {
    this.#request = request
    this.#measures = measures
    this.#plugins = plugins
    this.#isCapped = isCapped
  }

  /** Output tokens that the caller requests; 0 if unspecified. */
  get output(): number {
    return this.#request.max_output_tokens ?? 0
  }

  /** Kinds of input other than text that no plugin turns into text. */
  get modalities(): readonly string[] {
    this.#modalities ??= modalitiesIn(this.#request, this.#plugins)
    return this.#modalities
  }

  /** The filters that leave out endpoints of this model; usually none. */
  filters({ leastContext, leastOutput, takes, capsMessages }: ModelCandidates): readonly Filter[] {
    let filters: Filter[] | null = null
    const add = (excludedBy: string, admits: Filter['admits']): void => {
      filters ??= []
      filters.push({ excludedBy, applies: () => true, admits })
    }
    const hasParts = typeof this.#request.input !== 'string'
    if (hasParts && takes !== null && this.modalities.some(each => !takes.includes(each)))
      add(INPUT_MODALITIES, NOBODY)
    if (this.output > leastOutput && !this.#isCapped)
      add(MAX_OUTPUT_TOKENS, ({ endpoint }) => this.output <= (endpoint.maxOutputTokens ?? this.output))
    if (this.#mayExceed(leastContext) || (capsMessages && this.#plugins !== null))
      add(CONTEXT_LENGTH, ({ endpoint }) => this.#hasRoom(endpoint))
    return filters ?? NONE
  }

  /**
   * True once, if an endpoint was left out because the prompt would be cut for it; from then on such endpoints are
   * admitted. Called when no endpoint is left that accepts the whole prompt.
   */
  admitCuts(): boolean {
    if (this.#cuts) return false
    this.#cuts = this.#couldCut
    return this.#cuts
  }

  /** True if the endpoint can probably take the whole request. */
  fits({ contextLength, maxOutputTokens }: Endpoint): boolean {
    const { inputTokens } = this.#measures
    if (maxOutputTokens !== null && this.output > maxOutputTokens) return false
    if (contextLength === null || inputTokens === undefined) return true
    this.#tokens ??= inputTokens(this.#request)
    return this.#tokens + this.output <= contextLength
  }

  #mayExceed(leastContext: number): boolean {
    const { inputTokens, isInputBelow } = this.#measures
    if (leastContext === Number.POSITIVE_INFINITY || inputTokens === undefined) return false
    // A plugin reserves space for the answer itself, at most half of the context.
    const most = this.#plugins === null ? leastContext : leastContext / 2
    const room = Math.min(leastContext - this.output, most)
    if (isInputBelow !== undefined) return !isInputBelow(this.#request, room)
    return inputTokens(this.#request) > room
  }

  #hasRoom(endpoint: Endpoint): boolean {
    const { contextLength, maxOutputTokens } = endpoint
    const output = this.#isCapped ? Math.min(this.output, maxOutputTokens ?? this.output) : this.output
    if (this.#plugins?.fitting(endpoint, this.#request) === 'cut') {
      this.longestRefused = Math.max(this.longestRefused, contextLength ?? 0)
      if (output >= (contextLength ?? Number.POSITIVE_INFINITY)) return false
      this.#couldCut = true
      return this.#cuts
    }
    if (contextLength === null) return true
    const { inputTokens, leastTokens = inputTokens } = this.#measures
    this.#least ??= leastTokens?.(this.#request) ?? 0
    if (this.#least + output <= contextLength) return true
    this.longestRefused = Math.max(this.longestRefused, contextLength)
    return false
  }
}

function modalitiesIn({ input }: ResponsesRequest, plugins: FittingPlugins | null): readonly string[] {
  if (typeof input === 'string') return NONE
  let found: Set<string> | null = null
  for (const item of input) {
    for (const parts of partsOf(item)) {
      for (const part of parts) {
        const modality = MODALITIES[part.type ?? '']
        if (modality === undefined || plugins?.reads(part) === true) continue
        found ??= new Set()
        found.add(modality)
      }
    }
  }
  return found === null ? NONE : [...found]
}

interface Part {
  readonly type?: string
}

/** The parts of a message, and those of a tool's output. */
function* partsOf(item: object): Generator<readonly Part[]> {
  const { content, output } = item as { readonly content?: unknown; readonly output?: unknown }
  if (Array.isArray(content)) yield content as readonly Part[]
  if (Array.isArray(output)) yield output as readonly Part[]
}
