/** The interface description of the inference operations. Pure. */

import { type TSchema, Type } from '@sinclair/typebox'
import { ChatBody } from '../../dialects/chat-completions/body-schema.ts'
import { EmbeddingsBody } from '../../dialects/embeddings/body-schema.ts'
import { MessagesBody } from '../../dialects/messages/body-schema.ts'
import { PublicEvent } from '../../protocol/events.ts'
import { count } from '../../protocol/json/schema.ts'
import { EMBEDDING_INPUTS_MAX, TOKEN_ID_MAX } from '../../protocol/limits.ts'
import { ResponsesRequest } from '../../protocol/request.ts'
import { PublicResponse, ResponseUsage } from '../../protocol/response.ts'
import { ChatChunk, ChatCompletion, EmbeddingsList } from './chat.ts'
import {
  answer,
  CACHE_HEADER,
  header,
  IDEMPOTENCY_HEADER,
  METADATA_HEADER,
  PROOF_HEADER,
  query,
  RESUMABLE_HEADER,
  repeat,
  SESSION_HEADER,
  tagged,
  text,
  type UntaggedDescription,
} from './description.ts'
import { MessageAnswer, MessageEvent } from './message.ts'

const COMMON_HEADERS = [METADATA_HEADER, PROOF_HEADER, SESSION_HEADER]
const BETA_HEADER = header('anthropic-beta', text, 'Beta features of the Messages API, separated by commas.')
const EXAMPLE_ID = 'gen-1795373585-OIVPacWO6j6gITKu4v7b'
const EXAMPLE_CREATED = 1795373585
const USAGE_EXAMPLE = {
  input_tokens: 5,
  input_tokens_details: { cached_tokens: 0 },
  output_tokens: 3,
  output_tokens_details: { reasoning_tokens: 0 },
  total_tokens: 8,
  cost: 0.000007,
}

const Compaction = Type.Object({
  id: text,
  object: Type.Literal('response.compaction'),
  created_at: count,
  output: Type.Array(
    Type.Object({
      type: text,
      id: text,
      role: Type.Optional(text),
      status: Type.Optional(text),
      content: Type.Optional(Type.Array(Type.Object({ type: text }, { additionalProperties: true }))),
      encrypted_content: Type.Optional(text),
    }),
  ),
  usage: Type.Union([ResponseUsage, Type.Null()]),
})

const RESPONSE_EXAMPLE = {
  id: EXAMPLE_ID,
  object: 'response',
  created_at: EXAMPLE_CREATED,
  completed_at: EXAMPLE_CREATED + 1,
  status: 'completed',
  error: null,
  incomplete_details: null,
  instructions: null,
  model: 'sim/echo',
  output: [
    {
      type: 'message',
      id: 'msg_1',
      role: 'assistant',
      status: 'completed',
      content: [{ type: 'output_text', text: 'Hello', annotations: [] }],
    },
  ],
  output_text: 'Hello',
  parallel_tool_calls: true,
  tool_choice: 'auto',
  tools: [],
  text: { format: { type: 'text' } },
  ...repeat(null, 'temperature', 'top_p', 'frequency_penalty', 'presence_penalty'),
  ...repeat(null, 'top_logprobs', 'max_output_tokens', 'max_tool_calls', 'metadata'),
  background: false,
  ...repeat(null, 'previous_response_id', 'prompt_cache_key', 'reasoning'),
  ...repeat(null, 'safety_identifier', 'service_tier'),
  store: false,
  truncation: 'disabled',
  user: null,
  usage: USAGE_EXAMPLE,
}

const CHAT_USAGE_EXAMPLE = {
  prompt_tokens: 5,
  completion_tokens: 3,
  total_tokens: 8,
  prompt_tokens_details: {
    ...repeat(0, 'cached_tokens', 'cache_write_tokens', 'audio_tokens', 'file_tokens', 'video_tokens'),
  },
  completion_tokens_details: { reasoning_tokens: 0, audio_tokens: 0, image_tokens: 0 },
  cost: 0.000007,
  server_tool_use: { tool_calls_executed: 0, tool_calls_requested: 0, web_search_requests: 0 },
  server_tool_use_details: { tool_calls_executed: 0, tool_calls_requested: 0, web_search_requests: 0 },
}

const COMPLETION_EXAMPLE = {
  id: EXAMPLE_ID,
  object: 'chat.completion',
  created: EXAMPLE_CREATED,
  model: 'sim/echo',
  provider: 'Simulated',
  service_tier: null,
  system_fingerprint: null,
  choices: [
    {
      index: 0,
      finish_reason: 'stop',
      native_finish_reason: 'stop',
      logprobs: null,
      message: { role: 'assistant', content: 'Hello', refusal: null, reasoning: null },
    },
  ],
  usage: CHAT_USAGE_EXAMPLE,
}

const MESSAGE_EXAMPLE = {
  id: EXAMPLE_ID,
  type: 'message',
  role: 'assistant',
  model: 'sim/echo',
  provider: 'Simulated',
  diagnostics: null,
  content: [{ type: 'text', text: 'Hello', citations: null }],
  stop_reason: 'end_turn',
  stop_sequence: null,
  stop_details: null,
  container: null,
  usage: {
    input_tokens: 5,
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: 0,
    cache_creation: { ephemeral_5m_input_tokens: 0, ephemeral_1h_input_tokens: 0 },
    output_tokens: 3,
    output_tokens_details: { thinking_tokens: 0 },
    ...repeat(null, 'server_tool_use', 'service_tier', 'speed', 'inference_geo'),
  },
}

const DELTA_EXAMPLE =
  'event: response.output_text.delta\n' +
  'data: {"type":"response.output_text.delta","sequence_number":4,"item_id":"msg_1","output_index":0,' +
  '"content_index":0,"delta":"Hello","logprobs":[]}\n\n'

const CHUNK_EXAMPLE =
  `data: {"id":"${EXAMPLE_ID}","object":"chat.completion.chunk","created":${EXAMPLE_CREATED},"model":"sim/echo",` +
  '"provider":"Simulated","choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":null,' +
  '"native_finish_reason":null,"logprobs":null}]}\n\n'

const BLOCK_EXAMPLE =
  'event: content_block_delta\n' +
  'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}\n\n'

// Embeddings

const tokens = Type.Array(Type.Integer({ minimum: 0, maximum: TOKEN_ID_MAX }), { minItems: 1 })
const nonEmptyText = Type.String({ minLength: 1 })
const parts = Type.Object({
  content: Type.Array(
    Type.Union([
      Type.Object({ type: Type.Literal('text'), text }),
      Type.Object({ type: Type.Literal('image_url'), image_url: Type.Object({ url: nonEmptyText }) }),
    ]),
    { minItems: 1 },
  ),
})
const itemCounts = { minItems: 1, maxItems: EMBEDDING_INPUTS_MAX }

/** dialects/embeddings/body-schema.ts checks `input` separately. */
export const EmbeddingsInput = Type.Object({
  ...EmbeddingsBody.properties,
  input: Type.Union([
    nonEmptyText,
    tokens,
    Type.Array(nonEmptyText, itemCounts),
    Type.Array(tokens, itemCounts),
    Type.Array(parts, itemCounts),
  ]),
})

export const CountedMessage = Type.Object({
  ...MessagesBody.properties,
  max_tokens: Type.Optional(MessagesBody.properties.max_tokens),
})

const EXAMPLE_MESSAGES = [{ role: 'user', content: 'Hello' }]
const DATETIME_TOOL = { type: 'gateway:datetime', parameters: { timezone: 'Europe/Berlin' } }

const FRAME_POSITION_TEXT = 'Position of the last frame that you have, counted from 0; default: none.'

/** Reading a resumable stream again. */
function resumeDescription(after: string, schema: TSchema, example: string): UntaggedDescription {
  return {
    text:
      'Reads a stream that was requested with X-Gateway-Resumable: true and the same API key, ' +
      'while it runs and for a window after its end.',
    parameters: [
      query(
        'stream',
        Type.Unsafe<boolean>({ type: 'boolean', const: true }),
        'Only streams can be read.',
        true,
      ),
      query('starting_after', count, after),
    ],
    answers: {
      200: {
        text: 'The events after that one, then the live rest of the stream.',
        content: null,
        stream: { schema, example },
      },
    },
    failures: ['gone'],
  }
}

export const INFERENCE = tagged('Inference', {
  createResponse: {
    text:
      'A stream has one event in each frame, numbered from 0, and ends with data: [DONE]. ' +
      'Unknown fields are passed on to providers that speak this format.',
    parameters: [...COMMON_HEADERS, RESUMABLE_HEADER, IDEMPOTENCY_HEADER, CACHE_HEADER],
    body: {
      schema: ResponsesRequest,
      examples: {
        text: { model: 'sim/echo', input: 'Hello' },
        tool: { model: 'sim/call', input: 'What time is it?', tools: [DATETIME_TOOL], stream: true },
        schema: {
          model: 'sim/echo',
          input: [{ role: 'user', content: [{ type: 'input_text', text: 'Hello' }] }],
          text: { format: { type: 'json_schema', name: 'greeting', schema: { type: 'object' } } },
        },
        routing: {
          models: ['acme/fast-1', 'acme/fast-2'],
          input: 'Hello',
          provider: { sort: 'price', zdr: true },
          plugins: [{ id: 'alignment', rules: ['Give no medical advice'] }],
        },
      },
    },
    answers: {
      200: {
        ...answer(PublicResponse, 'The response or, with stream, its events.', RESPONSE_EXAMPLE),
        stream: { schema: PublicEvent, example: DELTA_EXAMPLE },
      },
    },
  },
  resumeResponse: resumeDescription(
    'sequence_number of the last event that you have; default: none.',
    PublicEvent,
    DELTA_EXAMPLE,
  ),
  resumeChatCompletion: resumeDescription(FRAME_POSITION_TEXT, ChatChunk, CHUNK_EXAMPLE),
  resumeMessage: resumeDescription(FRAME_POSITION_TEXT, MessageEvent, BLOCK_EXAMPLE),
  createChatCompletion: {
    text: 'A stream has one chunk in each frame, and ends with data: [DONE].',
    parameters: [...COMMON_HEADERS, RESUMABLE_HEADER, IDEMPOTENCY_HEADER, CACHE_HEADER],
    body: {
      schema: ChatBody,
      examples: {
        text: { model: 'sim/echo', messages: EXAMPLE_MESSAGES },
        function: {
          model: 'sim/call',
          messages: EXAMPLE_MESSAGES,
          tools: [{ type: 'function', function: { name: 'greet', parameters: { type: 'object' } } }],
        },
      },
    },
    answers: {
      200: {
        ...answer(ChatCompletion, 'The completion or, with stream, its chunks.', COMPLETION_EXAMPLE),
        stream: { schema: ChatChunk, example: CHUNK_EXAMPLE },
      },
    },
  },
  createEmbeddings: {
    text: 'One document, never a stream.',
    parameters: [METADATA_HEADER, IDEMPOTENCY_HEADER],
    body: {
      schema: EmbeddingsInput,
      examples: { texts: { model: 'sim/embed', input: ['Hello', 'Bye'], dimensions: 3 } },
    },
    answers: {
      200: answer(EmbeddingsList, 'A vector for each input, in the order of the inputs.', {
        object: 'list',
        data: [{ object: 'embedding', index: 0, embedding: [0.28, -0.96] }],
        model: 'sim/embed',
        id: EXAMPLE_ID,
        provider: 'Simulated',
        usage: { prompt_tokens: 3, total_tokens: 3, cost: 3e-7 },
      }),
    },
  },
  createMessage: {
    text: 'A stream has one event in each frame, and ends with message_stop or error.',
    parameters: [...COMMON_HEADERS, BETA_HEADER, RESUMABLE_HEADER, IDEMPOTENCY_HEADER, CACHE_HEADER],
    body: {
      schema: MessagesBody,
      examples: { text: { model: 'sim/echo', max_tokens: 100, messages: EXAMPLE_MESSAGES } },
    },
    answers: {
      200: {
        ...answer(MessageAnswer, 'The message or, with stream, its events.', MESSAGE_EXAMPLE),
        stream: { schema: MessageEvent, example: BLOCK_EXAMPLE },
      },
    },
  },
  compactConversation: {
    text: 'The same model writes a summary, which is returned encrypted: only this workspace can send it back. The output has the newest user, developer and system messages (64,000 tokens), and the summary last.',
    parameters: COMMON_HEADERS,
    body: {
      schema: ResponsesRequest,
      examples: { text: { model: 'sim/echo', input: 'Remember the number 7.' } },
    },
    answers: {
      200: answer(Compaction, 'The items that replace the conversation.', {
        id: EXAMPLE_ID,
        object: 'response.compaction',
        created_at: EXAMPLE_CREATED,
        output: [
          { type: 'compaction', id: 'cmp_7Kd8sPq2LxVz7Yw4Rb1TnAb2', encrypted_content: 'gw-summary-v1:k1.…' },
        ],
        usage: USAGE_EXAMPLE,
      }),
    },
  },
  countInputTokens: {
    text:
      'The provider counts if its API can; otherwise, the number is an estimate from the length of the texts. The header ' +
      'X-Gateway-Counted-By says which: provider or estimate. Nothing is charged.',
    body: { schema: ResponsesRequest, examples: { text: { model: 'sim/echo', input: 'Hello' } } },
    answers: {
      200: answer(
        Type.Object({ object: Type.Literal('response.input_tokens'), input_tokens: count }),
        'The number of tokens.',
        { object: 'response.input_tokens', input_tokens: 2 },
      ),
    },
    failures: ['unprocessable'],
  },
  countMessageTokens: {
    text:
      'The provider counts if its API can; otherwise, the number is an estimate from the length of the texts. The header ' +
      'X-Gateway-Counted-By says which: provider or estimate. Nothing is charged.',
    parameters: [BETA_HEADER],
    body: { schema: CountedMessage, examples: { text: { model: 'sim/echo', messages: EXAMPLE_MESSAGES } } },
    answers: {
      200: answer(
        Type.Object({ input_tokens: count, estimated: Type.Optional(Type.Literal(true)) }),
        'The number of tokens.',
        { input_tokens: 5, estimated: true },
      ),
    },
    failures: ['unprocessable'],
  },
})
