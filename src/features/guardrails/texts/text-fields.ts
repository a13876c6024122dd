/**
 * Strings of a request that are not text for a model: names, ids, links, bytes and settings. Pure. The rules hold only
 * for fields that the schema of the interface knows: an unknown field is text, because it is passed on to providers,
 * except what UNKNOWN_FIELDS and FIELD_WORDS name. Words that the schema enumerates are not text.
 */
import type { ResponsesRequest } from '../../../protocol/request.ts'

/**
 * The kind of a string:
 * - `text`: always a text; `url`: a text, unless it is a data URL of media bytes;
 * - `json`: a text, and a second one without its escapes, as a format that parses it would read it;
 * - `sealed`: a text only where it is not encrypted;
 * - `name`, `id`: a text only if it does not have that form; `link`: the same, and a data URL of text is a text;
 * - `file`: as `link`, or base64 without a data URL around it;
 * - `kept`: never a text.
 */
export type Leaf = 'text' | 'url' | 'json' | 'name' | 'id' | 'sealed' | 'link' | 'file' | 'kept'

/** The rule of a field: the kind of its strings, a JSON schema, a choice of named tools, or no texts at all. */
export type FieldRule = Leaf | 'schema' | 'choices' | 'nothing'

export type FieldRules = Readonly<Record<string, FieldRule>>

/** Fields of items, parts and settings, at any depth. */
export const FIELDS: FieldRules = {
  id: 'id',
  call_id: 'id',
  file_id: 'id',
  container_id: 'id',
  subagent_id: 'id',
  approval_request_id: 'id',
  encrypted_content: 'sealed',
  signature: 'id',
  name: 'name',
  namespace: 'name',
  server_label: 'name',
  author: 'name',
  recipient: 'name',
  agent_name: 'name',
  format: 'name',
  image_url: 'link',
  video_url: 'link',
  file_url: 'link',
  file_data: 'file',
  url: 'url',
  arguments: 'json',
  output: 'json',
  text: 'json',
  data: 'kept',
  // Every format leaves them out.
  logprobs: 'nothing',
}

/** Fields of tools. Names are never changed, because calls and choices refer to them. */
const TOOL_FIELDS: FieldRules = {
  ...FIELDS,
  parameters: 'schema',
  output_schema: 'schema',
  input_schema: 'schema',
  schema: 'schema',
  connector_id: 'name',
  allowed_tools: 'name',
  tool_names: 'name',
  vector_store_ids: 'id',
  file_ids: 'id',
  container: 'id',
  key: 'name',
  model: 'name',
  ranker: 'name',
  size: 'name',
  allowed_domains: 'name',
  excluded_domains: 'name',
  blocked_domains: 'name',
  // For the tool's server, not for a model. A rule against secrets would block every use of them.
  server_url: 'kept',
  authorization: 'kept',
  headers: 'nothing',
}

/** Fields of annotations: the name of a file is a text. */
const ANNOTATION_FIELDS: FieldRules = { file_id: 'id', container_id: 'id', hash: 'id', url: 'url' }

/** Fields with special rules for everything below them. */
export const FIELDS_BELOW: ReadonlyMap<string, FieldRules> = new Map([
  ['annotations', ANNOTATION_FIELDS],
  ['tools', TOOL_FIELDS],
  ['tool_choice', { ...TOOL_FIELDS, tools: 'choices' }],
  // The format of an answer has a JSON schema.
  ['format', TOOL_FIELDS],
])

/** Fields of items of server tools. They are sent to a provider as one JSON text without the ids. */
export const GATEWAY_ITEM_FIELDS: FieldRules = { id: 'id', call_id: 'id', arguments: 'json' }

const PICTURE_ITEM: FieldRules = { result: 'kept', imageB64: 'kept', imageUrl: 'url' }
const BROWSER_ITEM: FieldRules = { screenshotB64: 'kept' }

/** Fields of some kinds of items: bytes of images, which no format sends as text. */
export const ITEM_FIELDS: ReadonlyMap<string, FieldRules> = new Map([
  ['image_generation_call', { result: 'kept' }],
  ['gateway:image_generation', PICTURE_ITEM],
  ['openrouter:image_generation', PICTURE_ITEM],
  ['gateway:browser_use', BROWSER_ITEM],
  ['openrouter:browser_use', BROWSER_ITEM],
])

/**
 * Fields of `native` (protocol/json/native.ts), at any depth: content that only the client's API can express. Its names
 * and sealed parts must not change; everything else is a text.
 */
export const NATIVE_FIELDS: ReadonlyMap<string, Leaf> = new Map([
  ['type', 'name'],
  ['name', 'name'],
  ['tool_name', 'name'],
  ['server_name', 'name'],
  ['toolset_name', 'name'],
  ['media_type', 'name'],
  ['id', 'id'],
  ['tool_use_id', 'id'],
  ['tool_id', 'id'],
  ['file_id', 'id'],
  ['encrypted_content', 'id'],
  ['encrypted_stdout', 'id'],
  ['encrypted_index', 'id'],
  ['signature', 'id'],
  ['url', 'url'],
  ['ttl', 'name'],
])

/** Common names of fields that the schema does not know: these fields may hold bytes or JSON. */
export const UNKNOWN_FIELDS: ReadonlyMap<string, Leaf> = new Map([
  ['url', 'url'],
  ['uri', 'url'],
  ['image_url', 'url'],
  ['imageUrl', 'url'],
  ['video_url', 'url'],
  ['file_url', 'url'],
  ['file_data', 'url'],
  ['arguments', 'json'],
])

/** Words that are not text in these fields, even if the schema does not know the field. */
export const FIELD_WORDS: ReadonlyMap<string, ReadonlySet<string>> = new Map([
  ['role', new Set(['user', 'assistant', 'system', 'developer', 'tool'])],
  ['status', new Set(['in_progress', 'completed', 'incomplete', 'failed'])],
  [
    'type',
    new Set([
      'message',
      'text',
      'content',
      'input_text',
      'output_text',
      'summary_text',
      'reasoning_text',
      'refusal',
      'input_image',
      'image_url',
      'input_file',
      'file',
      'function',
      'function_call',
      'function_call_output',
      'json_object',
      'json_schema',
      'ephemeral',
      'url',
      'create_file',
      'update_file',
      'delete_file',
    ]),
  ],
])

/**
 * The use of a field of a request:
 * - `conversation`: text of the conversation, which guardrails and moderation check;
 * - `sent`: it is also sent to the provider, so guardrails check it;
 * - `internal`: it stays here, or is sent only as numbers, hashes and words of the interface.
 */
export type FieldUse = 'conversation' | 'sent' | 'internal'

export const REQUEST_FIELDS: Readonly<Record<keyof ResponsesRequest, FieldUse>> = {
  input: 'conversation',
  instructions: 'conversation',
  prompt: 'conversation',
  image_config: 'conversation',
  tools: 'sent',
  tool_choice: 'sent',
  text: 'sent',
  reasoning: 'sent',
  // No model reads it, but some formats send it.
  metadata: 'sent',
  prompt_cache_key: 'sent',
  prompt_cache_options: 'sent',
  cache_control: 'internal',
  model: 'internal',
  models: 'internal',
  max_output_tokens: 'internal',
  generate: 'internal',
  max_tool_calls: 'internal',
  temperature: 'internal',
  top_p: 'internal',
  top_k: 'internal',
  top_logprobs: 'internal',
  frequency_penalty: 'internal',
  presence_penalty: 'internal',
  parallel_tool_calls: 'internal',
  background: 'internal',
  include: 'internal',
  modalities: 'internal',
  plugins: 'internal',
  previous_response_id: 'internal',
  store: 'internal',
  stream: 'internal',
  service_tier: 'internal',
  session_id: 'internal',
  user: 'internal',
  safety_identifier: 'internal',
  debug: 'internal',
  provider: 'internal',
  route: 'internal',
  stop_server_tools_when: 'internal',
  trace: 'internal',
  truncation: 'internal',
  preset: 'internal',
  prediction: 'conversation',
  stop: 'conversation',
  logit_bias: 'sent',
  seed: 'internal',
  min_p: 'internal',
  top_a: 'internal',
  repetition_penalty: 'internal',
}
