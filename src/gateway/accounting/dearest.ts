/**
 * The highest prices that can apply to a request. They are reserved while it is unknown how much of the prompt is
 * cached, which media it contains, and how many tokens the provider counts. Pure.
 */
import type { PicoUsd } from '../../money.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import { pricesFor } from '../../providers/pricing.ts'
import type { Endpoint, Pricing, TokenPrices } from '../../providers/provider.ts'
import { imagesIn } from './charge.ts'
import { attachmentTokens } from './estimate.ts'
import { type FetchingEndpoint, fetchedTokens } from './fetched.ts'

/** A provider may count up to this many tokens per estimated token, so a price for long prompts may apply. */
const LENGTH_MARGIN = 4 / 3

/** The highest prices of one request at one endpoint. */
interface DearestPrices {
  /** All of its input, its images and the fee per request. */
  readonly input: PicoUsd
  /** Everything else that its provider may fetch: images and files behind links, and search results. */
  readonly fetched: PicoUsd
  /** Per token of text that is read. */
  readonly perInputToken: PicoUsd
  /** Per token that is written: thinking cannot be told apart from text in advance. */
  readonly perOutputToken: PicoUsd
}

/** `inputTokens`: the estimate of the request. */
export function dearestPrices(
  request: ResponsesRequest,
  endpoint: FetchingEndpoint & Pick<Endpoint, 'pricing'>,
  inputTokens: number,
): DearestPrices {
  const { pricing } = endpoint
  const near = pricesFor(pricing, inputTokens)
  const far = pricesFor(pricing, Math.ceil(inputTokens * LENGTH_MARGIN))
  const hasHourMark = writesForAnHour(pricing) && marksAnHour(request)
  const perInputToken = Math.max(inputPrice(near, hasHourMark), inputPrice(far, hasHourMark))
  const perAudioToken = Math.max(perInputToken, near.audio ?? 0, far.audio ?? 0)
  const { counted, heard } = audioIn(request.input)
  const images = imagesIn(pricing, request) * (pricing.image ?? 0)
  return {
    input:
      Math.max(0, inputTokens - counted) * perInputToken + heard * perAudioToken + images + pricing.request,
    fetched: fetchedTokens(request, inputTokens, endpoint) * perAudioToken,
    perInputToken,
    perOutputToken: Math.max(outputPrice(near), outputPrice(far)),
  }
}

function inputPrice(
  { prompt, inputCacheRead, inputCacheWrite, inputCacheWrite1h }: TokenPrices,
  hasHourMark: boolean,
): PicoUsd {
  // If there is only one price for cache writes, it is that of the provider's default lifetime.
  const hour = hasHourMark || inputCacheWrite === null ? inputCacheWrite1h : null
  return Math.max(prompt, inputCacheRead ?? 0, inputCacheWrite ?? 0, hour ?? 0)
}

function outputPrice({ completion, internalReasoning }: TokenPrices): PicoUsd {
  return Math.max(completion, internalReasoning ?? 0)
}

function writesForAnHour({ inputCacheWrite1h, overrides }: Pricing): boolean {
  return inputCacheWrite1h != null || (overrides ?? []).some(({ inputCacheWrite1h: price }) => price != null)
}

/** True if any cache mark asks for an hour, anywhere: tools and native fields have marks too. */
function marksAnHour(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false
  if (Array.isArray(value)) return value.some(marksAnHour)
  return Object.entries(value).some(([name, inner]) => (name === 'ttl' ? inner === '1h' : marksAnHour(inner)))
}

interface Audio {
  /** The audio's tokens in the estimate of the input. */
  readonly counted: number
  /** The maximum number of tokens that the audio may have. */
  readonly heard: number
}

const SILENCE: Audio = { counted: 0, heard: 0 }
/** Voice codecs use about this many base64 characters per counted token. */
const VOICE_CHARS_PER_TOKEN = 32
/** Audio without a codec uses at least this many. */
const WAV_CHARS_PER_TOKEN = 256
const WAV = /^(?:data:audio\/(?:x-)?wav[^,]{0,80};base64,)?UklGR/i
const WAV_HEAD_CHARS = 128
/** Files of these kinds contain no audio. */
const SILENT = /^(?:data:(?:image|text|application)\/|JVBERi0|iVBORw0KGgo|\/9j\/|R0lGOD)/i

/** The audio of parts, and everything that may be audio: videos, and files of unknown type. */
function audioIn(value: unknown): Audio {
  if (typeof value !== 'object' || value === null) return SILENCE
  if (Array.isArray(value)) {
    let counted = 0
    let heard = 0
    for (const each of value) {
      const audio = audioIn(each)
      counted += audio.counted
      heard += audio.heard
    }
    return { counted, heard }
  }
  const part = value as Readonly<Record<string, unknown>>
  switch (part['type']) {
    case 'input_audio':
      return audioOf((part['input_audio'] as { readonly data?: unknown } | undefined)?.data)
    case 'input_video':
      return audioOf(part['video_url'])
    case 'input_file':
      return audioOf(part['file_data'] ?? part['file_url'])
    default: {
      const content = audioIn(part['content'])
      const output = audioIn(part['output'])
      return { counted: content.counted + output.counted, heard: content.heard + output.heard }
    }
  }
}

function audioOf(data: unknown): Audio {
  if (typeof data !== 'string' || SILENT.test(data)) return SILENCE
  const counted = attachmentTokens(data)
  const chars = WAV.test(data.slice(0, WAV_HEAD_CHARS)) ? WAV_CHARS_PER_TOKEN : VOICE_CHARS_PER_TOKEN
  return { counted, heard: Math.max(counted, Math.ceil(data.length / chars)) }
}
