/** Images and audio in a prompt, which have prices of their own. Pure. */
import type { Pricing } from '../../protocol/provider.ts'
import { attachmentTokens } from './estimate.ts'

/** Counts the images in the prompt, but only if images have a price. */
export function imagesIn({ image }: Pick<Pricing, 'image'>, { input }: { readonly input: unknown }): number {
  return image == null || image === 0 || typeof input === 'string' ? 0 : countImages(input)
}

function countImages(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0
  if (Array.isArray(value)) return value.reduce((sum: number, entry) => sum + countImages(entry), 0)
  const part = value as { readonly type?: unknown; readonly content?: unknown; readonly output?: unknown }
  if (part.type === 'input_image') return 1
  // Messages hold parts in their content, outputs of calls in their output.
  return countImages(part.content) + countImages(part.output)
}

interface Audio {
  /** The audio's tokens in the estimate of the input. */
  readonly estimatedTokens: number
  /** The maximum number of tokens that the audio may have. */
  readonly maxTokens: number
}

const NO_AUDIO: Audio = { estimatedTokens: 0, maxTokens: 0 }
/** Voice codecs use about this many base64 characters per counted token. */
const VOICE_CHARS_PER_TOKEN = 32
/** Audio without a codec uses at least this many. */
const WAV_CHARS_PER_TOKEN = 256
const WAV_FILE = /^(?:data:audio\/(?:x-)?wav[^,]{0,80};base64,)?UklGR/i
const WAV_HEAD_CHARS = 128
/** Files of these kinds contain no audio. */
const SILENT_FILE = /^(?:data:(?:image|text|application)\/|JVBERi0|iVBORw0KGgo|\/9j\/|R0lGOD)/i

/** The audio of parts, and everything that may be audio: videos, and files of unknown type. */
export function audioIn(value: unknown): Audio {
  if (typeof value !== 'object' || value === null) return NO_AUDIO
  if (Array.isArray(value)) {
    let estimatedTokens = 0
    let maxTokens = 0
    for (const entry of value) {
      const audio = audioIn(entry)
      estimatedTokens += audio.estimatedTokens
      maxTokens += audio.maxTokens
    }
    return { estimatedTokens, maxTokens }
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
      return {
        estimatedTokens: content.estimatedTokens + output.estimatedTokens,
        maxTokens: content.maxTokens + output.maxTokens,
      }
    }
  }
}

function audioOf(data: unknown): Audio {
  if (typeof data !== 'string' || SILENT_FILE.test(data)) return NO_AUDIO
  const estimatedTokens = attachmentTokens(data)
  const chars = WAV_FILE.test(data.slice(0, WAV_HEAD_CHARS)) ? WAV_CHARS_PER_TOKEN : VOICE_CHARS_PER_TOKEN
  return { estimatedTokens, maxTokens: Math.max(estimatedTokens, Math.ceil(data.length / chars)) }
}
