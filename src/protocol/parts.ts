/**
 * Message contents: content parts, annotations, log probabilities. Schemas check what clients send;
 * the plain types are for what the gateway produces. Objects are open: unknown fields are kept. Pure.
 */
import { type Static, Type } from '@sinclair/typebox'
import { kind, maybe, oneOf, variants } from './json/schema.ts'

/** A cache breakpoint is a field of the block itself; `cache_control` is accepted too. */
const CacheBreakpoint = Type.Object({ mode: Type.Literal('explicit') })

export const CacheControl = kind('ephemeral', { ttl: maybe(oneOf('5m', '1h')) })
export type CacheControl = Static<typeof CacheControl>

const cacheMarks = { prompt_cache_breakpoint: maybe(CacheBreakpoint), cache_control: maybe(CacheControl) }

export const InputText = kind('input_text', { text: Type.String(), ...cacheMarks })
export type InputText = Static<typeof InputText>

/** `detail` is `auto` when missing. `image_url` is a URL or a data URL. */
export const InputImage = kind('input_image', {
  detail: maybe(oneOf('auto', 'high', 'low', 'original')),
  image_url: maybe(Type.String()),
  file_id: maybe(Type.String()),
  ...cacheMarks,
})
export type InputImage = Static<typeof InputImage>

export const InputFile = kind('input_file', {
  file_data: maybe(Type.String()),
  file_id: maybe(Type.String()),
  file_url: maybe(Type.String()),
  filename: maybe(Type.String()),
  ...cacheMarks,
})
export type InputFile = Static<typeof InputFile>

export const InputAudio = kind('input_audio', {
  input_audio: Type.Object({ data: Type.String(), format: oneOf('mp3', 'wav') }),
  ...cacheMarks,
})
export type InputAudio = Static<typeof InputAudio>

export const InputVideo = kind('input_video', {
  video_url: Type.String(),
  processing: maybe(oneOf('agentic', 'static')),
  ...cacheMarks,
})
export type InputVideo = Static<typeof InputVideo>

const inputParts = {
  input_text: InputText,
  input_image: InputImage,
  input_file: InputFile,
  input_audio: InputAudio,
  input_video: InputVideo,
}

/** Names of the Chat Completions API. */
const CHAT_NAMES = {
  text: 'input_text',
  image_url: 'input_image',
  file: 'input_file',
  video_url: 'input_video',
}

export const InputPart = variants(inputParts, { noun: 'content part', otherNames: CHAT_NAMES })
export type InputPart = Static<typeof InputPart>

/** The output of a tool. Audio and video pass for providers that take them. */
export const ToolOutput = Type.Union([Type.String(), Type.Array(InputPart)])

const index = Type.Integer({ minimum: 0 })

const UrlCitation = kind('url_citation', {
  url: Type.String(),
  title: maybe(Type.String()),
  start_index: maybe(index),
  end_index: maybe(index),
  content: maybe(Type.String()),
})
const FileCitation = kind('file_citation', {
  file_id: Type.String(),
  filename: maybe(Type.String()),
  index: maybe(index),
})
const FilePath = kind('file_path', { file_id: Type.String(), index: maybe(index) })
const ContainerFileCitation = kind('container_file_citation', {
  container_id: Type.String(),
  file_id: Type.String(),
  filename: maybe(Type.String()),
  start_index: maybe(index),
  end_index: maybe(index),
})
const ParsedFile = kind('file', {
  file: Type.Object({
    hash: Type.String(),
    name: maybe(Type.String()),
    content: Type.Array(Type.Object({ type: Type.String() })),
  }),
})

/** Providers have more kinds of annotation than any list; unknown ones are kept as they are. */
export const InputAnnotation = variants(
  {
    url_citation: UrlCitation,
    file_citation: FileCitation,
    file_path: FilePath,
    container_file_citation: ContainerFileCitation,
    file: ParsedFile,
  },
  { noun: 'annotation', open: true },
)

const InputLogprob = Type.Object({
  token: Type.String(),
  logprob: Type.Number(),
  bytes: maybe(Type.Array(Type.Integer())),
  top_logprobs: maybe(
    Type.Array(
      Type.Object({
        token: maybe(Type.String()),
        logprob: maybe(Type.Number()),
        bytes: maybe(Type.Array(Type.Integer())),
      }),
    ),
  ),
})

/** An output text that a client sends back, perhaps without its annotations and log probabilities. */
export const ReplayedOutputText = kind('output_text', {
  text: Type.String(),
  annotations: maybe(Type.Array(InputAnnotation)),
  logprobs: maybe(Type.Array(InputLogprob)),
  ...cacheMarks,
})
export type ReplayedOutputText = Static<typeof ReplayedOutputText>

export const ReplayedRefusal = kind('refusal', { refusal: Type.String() })

/** Parts of an assistant message: output of the model or, in the short form, any part that a user may send. */
export const AssistantPart = variants(
  { ...inputParts, output_text: ReplayedOutputText, refusal: ReplayedRefusal },
  { noun: 'content part', otherNames: { ...CHAT_NAMES, text: 'output_text' } },
)
export type AssistantPart = Static<typeof AssistantPart>

export const SummaryPart = kind('summary_text', { text: Type.String() })
export const ReasoningPart = kind('reasoning_text', { text: Type.String() })

/** Content of an agent message. Messages between agents may be encrypted. */
export const AgentPart = variants(
  {
    input_text: InputText,
    input_image: InputImage,
    encrypted_content: kind('encrypted_content', { encrypted_content: Type.String() }),
  },
  { noun: 'content part' },
)

/** A value of a stored prompt's variable. */
export const PromptVariable = Type.Union([
  Type.String(),
  variants(
    { input_text: InputText, input_image: InputImage, input_file: InputFile },
    { noun: 'prompt variable' },
  ),
])

// Values that the gateway produces.

export interface UrlCitationAnnotation {
  type: 'url_citation'
  url: string
  title: string
  start_index: number
  end_index: number
  content?: string
}

/** A result of a search that a text may cite. */
export type Citable = Omit<UrlCitationAnnotation, 'start_index' | 'end_index'>

interface FileCitationAnnotation {
  type: 'file_citation'
  file_id: string
  filename: string
  index: number
}

interface FilePathAnnotation {
  type: 'file_path'
  file_id: string
  index: number
}

interface ContainerFileCitationAnnotation {
  type: 'container_file_citation'
  container_id: string
  file_id: string
  filename: string
  start_index: number
  end_index: number
}

export interface ParsedFileAnnotation {
  type: 'file'
  file: { hash: string; name?: string; content: Readonly<Record<string, unknown>>[] }
}

/** A note on a range of output text. */
export type Annotation =
  | UrlCitationAnnotation
  | FileCitationAnnotation
  | FilePathAnnotation
  | ContainerFileCitationAnnotation
  | ParsedFileAnnotation

interface TopLogprob {
  token?: string
  logprob?: number
  bytes?: number[] | null
}

/** Log probability of one token of output text, natural logarithm. */
export interface Logprob {
  token: string
  logprob: number
  bytes?: number[] | null
  top_logprobs?: TopLogprob[]
}

export interface OutputTextPart {
  type: 'output_text'
  text: string
  annotations: Annotation[]
  logprobs?: Logprob[]
}

export interface RefusalPart {
  type: 'refusal'
  refusal: string
}

export interface ReasoningTextPart {
  type: 'reasoning_text'
  text: string
}

export interface SummaryTextPart {
  type: 'summary_text'
  text: string
}

/** A part of an output item's `content`. */
export type OutputPart = OutputTextPart | RefusalPart | ReasoningTextPart
