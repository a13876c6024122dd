/** Schemas of the elements of `messages`. Objects are open: unknown fields are accepted. Pure. */
import { type Static, Type } from '@sinclair/typebox'
import { AnyObject, kind, maybe, oneOf, variants } from '../../protocol/json/schema.ts'
import { CacheControl, ReplayedRefusal } from '../../protocol/parts.ts'

const name = maybe(Type.String())
const filled = Type.String({ minLength: 1 })
const marks = {
  cache_control: maybe(CacheControl),
  prompt_cache_breakpoint: maybe(Type.Object({ mode: Type.Literal('explicit') })),
}

// Parts

const TextPart = kind('text', { text: Type.String(), ...marks })

const ImagePart = kind('image_url', {
  image_url: Type.Object({
    url: filled,
    detail: maybe(oneOf('auto', 'high', 'low', 'original')),
  }),
  ...marks,
})

const AudioPart = kind('input_audio', {
  input_audio: Type.Object({ data: Type.String(), format: oneOf('mp3', 'wav') }),
  ...marks,
})

const FilePart = kind('file', {
  file: Type.Object({
    filename: maybe(Type.String()),
    file_data: maybe(Type.String()),
    file_id: maybe(Type.String()),
    file_url: maybe(Type.String()),
  }),
  ...marks,
})

const VideoPart = kind('video_url', {
  video_url: Type.Object({ url: filled }),
  processing: maybe(oneOf('agentic', 'static')),
  ...marks,
})

const parts = {
  text: TextPart,
  image_url: ImagePart,
  input_audio: AudioPart,
  file: FilePart,
  video_url: VideoPart,
}
const Part = variants(parts, { noun: 'content part' })
const AssistantPart = variants({ ...parts, refusal: ReplayedRefusal }, { noun: 'content part' })
/** A part of any message. */
export type ChatPart = Static<typeof AssistantPart>

const instructions = Type.Union([
  Type.String(),
  Type.Array(variants({ text: TextPart }, { noun: 'content part' })),
])
const content = Type.Union([Type.String(), Type.Array(Part)])

// Fields of an assistant message beside its content

const ToolCall = variants(
  {
    function: Type.Object({
      id: filled,
      type: Type.Optional(Type.Literal('function')),
      function: Type.Object({ name: filled, arguments: Type.String() }),
      extra_content: maybe(AnyObject),
    }),
    custom: Type.Object({
      id: filled,
      type: Type.Literal('custom'),
      custom: Type.Object({ name: filled, input: Type.String() }),
    }),
  },
  { noun: 'tool call', defaultKind: 'function' },
)
export type ChatToolCall = Static<typeof ToolCall>

const common = { id: maybe(Type.String()), format: maybe(Type.String()), index: maybe(Type.Integer()) }

/** Open: unknown kinds are ignored. */
const ReasoningDetail = variants(
  {
    'reasoning.text': kind('reasoning.text', {
      text: maybe(Type.String()),
      signature: maybe(Type.String()),
      ...common,
    }),
    'reasoning.summary': kind('reasoning.summary', { summary: maybe(Type.String()), ...common }),
    'reasoning.encrypted': kind('reasoning.encrypted', { data: Type.String(), ...common }),
    'reasoning.server_tool_call': kind('reasoning.server_tool_call', {
      tool_name: maybe(Type.String()),
      tool_call_id: maybe(Type.String()),
      arguments: maybe(Type.String()),
      result: maybe(Type.String()),
    }),
  },
  { noun: 'reasoning detail', open: true },
)
export type ReasoningDetail = Static<typeof ReasoningDetail>

const position = maybe(Type.Integer({ minimum: 0 }))

/** Open: other kinds are passed on unchanged. */
const ChatAnnotation = variants(
  {
    url_citation: kind('url_citation', {
      url_citation: Type.Object({
        url: Type.String(),
        title: maybe(Type.String()),
        start_index: position,
        end_index: position,
        content: maybe(Type.String()),
      }),
    }),
    file: kind('file', {
      file: Type.Object({
        hash: Type.String(),
        name: maybe(Type.String()),
        content: Type.Array(Type.Object({ type: Type.String() })),
      }),
    }),
  },
  { noun: 'annotation', open: true },
)
export type ChatAnnotation = Static<typeof ChatAnnotation>

const Image = Type.Object({ image_url: Type.Object({ url: filled }) })

// Messages

const ChatAssistantMessage = Type.Object({
  role: Type.Literal('assistant'),
  content: maybe(Type.Union([Type.String(), Type.Array(AssistantPart)])),
  name,
  refusal: maybe(Type.String()),
  tool_calls: maybe(Type.Array(ToolCall)),
  reasoning: maybe(Type.String()),
  /** The name that other providers of this format have for `reasoning`. */
  reasoning_content: maybe(Type.String()),
  reasoning_details: maybe(Type.Array(ReasoningDetail)),
  annotations: maybe(Type.Array(ChatAnnotation)),
  images: maybe(Type.Array(Image)),
})
export type ChatAssistantMessage = Static<typeof ChatAssistantMessage>

export const ChatMessage = variants(
  {
    system: Type.Object({ role: Type.Literal('system'), content: instructions, name }),
    developer: Type.Object({ role: Type.Literal('developer'), content: instructions, name }),
    user: Type.Object({ role: Type.Literal('user'), content, name }),
    assistant: ChatAssistantMessage,
    tool: Type.Object({ role: Type.Literal('tool'), content, tool_call_id: filled, name }),
  },
  { noun: 'message role', tag: 'role' },
)
export type ChatMessage = Static<typeof ChatMessage>
