/**
 * Message contents: content parts, annotations, log probabilities, as clients send them and as the gateway produces
 * them. Objects that clients send are open: unknown fields are kept. Pure.
 */
import { type Static, Type } from '@sinclair/typebox'
import { kind, maybe, oneOf, ReadonlyFields, variants } from './json/schema.ts'

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

export const SummaryTextPart = kind('summary_text', { text: Type.String() })
export type SummaryTextPart = Static<typeof SummaryTextPart>

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

// Contents that the gateway produces

export const UrlCitationAnnotation = kind('url_citation', {
  url: Type.String(),
  title: Type.String(),
  start_index: index,
  end_index: index,
  content: Type.Optional(Type.String()),
})
export type UrlCitationAnnotation = Static<typeof UrlCitationAnnotation>

/** A search result that a text may cite. */
export type Citable = Omit<UrlCitationAnnotation, 'start_index' | 'end_index'>

const ParsedFileAnnotation = kind('file', {
  file: Type.Object({
    hash: Type.String(),
    name: Type.Optional(Type.String()),
    content: Type.Array(ReadonlyFields),
  }),
})
export type ParsedFileAnnotation = Static<typeof ParsedFileAnnotation>

/** A note on a range of output text. */
export const Annotation = variants(
  {
    url_citation: UrlCitationAnnotation,
    file_citation: kind('file_citation', { file_id: Type.String(), filename: Type.String(), index }),
    file_path: kind('file_path', { file_id: Type.String(), index }),
    container_file_citation: kind('container_file_citation', {
      container_id: Type.String(),
      file_id: Type.String(),
      filename: Type.String(),
      start_index: index,
      end_index: index,
    }),
    file: ParsedFileAnnotation,
  },
  { noun: 'annotation' },
)
export type Annotation = Static<typeof Annotation>

const bytes = maybe(Type.Array(Type.Integer()))

/** Log probability of one token of output text, natural logarithm. */
export const Logprob = Type.Object({
  token: Type.String(),
  logprob: Type.Number(),
  bytes,
  top_logprobs: Type.Optional(
    Type.Array(
      Type.Object({ token: Type.Optional(Type.String()), logprob: Type.Optional(Type.Number()), bytes }),
    ),
  ),
})
export type Logprob = Static<typeof Logprob>

export const OutputTextPart = kind('output_text', {
  text: Type.String(),
  annotations: Type.Array(Annotation),
  logprobs: Type.Optional(Type.Array(Logprob)),
})
export type OutputTextPart = Static<typeof OutputTextPart>

export const RefusalPart = kind('refusal', { refusal: Type.String() })
export type RefusalPart = Static<typeof RefusalPart>

export const ReasoningTextPart = kind('reasoning_text', { text: Type.String() })
export type ReasoningTextPart = Static<typeof ReasoningTextPart>

/** A part of an output item's `content`. */
export const OutputPart = variants(
  { output_text: OutputTextPart, refusal: RefusalPart, reasoning_text: ReasoningTextPart },
  { noun: 'part of an output item' },
)
export type OutputPart = Static<typeof OutputPart>
