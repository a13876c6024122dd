/**
 * Which strings of a request are no text that a model reads: names, ids, links, bytes and settings. Pure. These tables
 * hold only where the schema of the interface knows the field: whatever it does not know counts as text, whatever it
 * is called, because objects are open and what nobody knows is passed on. Words that the schema enumerates are no text.
 */
import type { ResponsesRequest } from '../../protocol/request-body.ts'

/**
 * What a string is taken for:
 * - `text`: looked at; `url`: too, unless it is the bytes of a picture or the like;
 * - `json`: looked at as it stands and, with escapes, as it reads when a format parses it;
 * - `sealed`: no text but what of it lies open;
 * - `name` and `id`: no text as long as they have that form; `link`: the same, and a data URL of text is read;
 * - `file`: as `link`, or base64 without a data URL around it;
 * - `kept`: never looked at.
 */
export type Leaf = 'text' | 'url' | 'json' | 'name' | 'id' | 'sealed' | 'link' | 'file' | 'kept'

/** What a field holds: strings (or lists of them), a JSON schema, named tools, or nothing that is looked at. */
export type FieldRule = Leaf | 'schema' | 'choices' | 'nothing'

export type Rules = Readonly<Record<string, FieldRule>>

/** Fields of items, parts and settings. Values below them are read by these rules too. */
export const FIELDS: Rules = {
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
  prompt_cache_key: 'id',
  // Every format leaves them out.
  logprobs: 'nothing',
}

/** Fields of tools. Names stay as they are, because calls and choices go by them. */
const TOOL_FIELDS: Rules = {
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
  // For the server of the tool; no model is shown them, and a rule against secrets would lock everybody out.
  server_url: 'kept',
  authorization: 'kept',
  headers: 'nothing',
}

/** Fields of notes on a text: there, a name is that of a file. */
const ANNOTATION_FIELDS: Rules = { file_id: 'id', container_id: 'id', hash: 'id', url: 'url' }

/** Fields below which other rules hold. */
export const FIELDS_UNDER: ReadonlyMap<string, Rules> = new Map([
  ['annotations', ANNOTATION_FIELDS],
  ['tools', TOOL_FIELDS],
  ['tool_choice', { ...TOOL_FIELDS, tools: 'choices' }],
  // That of an answer has a schema.
  ['format', TOOL_FIELDS],
])

/**
 * Fields of items of tools that ran on our side, which go to a provider as one JSON text: all of it is read but ids,
 * which are left out of it.
 */
export const GATEWAY_ITEM_FIELDS: Rules = { id: 'id', call_id: 'id', arguments: 'json' }

const PICTURE_ITEM: Rules = { result: 'kept', imageB64: 'kept', imageUrl: 'url' }
const BROWSER_ITEM: Rules = { screenshotB64: 'kept' }

/** Of some kinds of items: bytes of pictures, which no format sends as text. */
export const ITEM_FIELDS: ReadonlyMap<string, Rules> = new Map([
  ['image_generation_call', { result: 'kept' }],
  ['gateway:image_generation', PICTURE_ITEM],
  ['openrouter:image_generation', PICTURE_ITEM],
  ['gateway:browser_use', BROWSER_ITEM],
  ['openrouter:browser_use', BROWSER_ITEM],
])

/** Where the schema knows nothing: fields that may hold bytes or JSON, by the names that they usually have. */
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

/** Words that say what something is, where a schema leaves it open. A rule for such a word means another use of it. */
export const WORDS: ReadonlyMap<string, ReadonlySet<string>> = new Map([
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
 * The fields of a request: `said` is what somebody says; `seen` is sent as well, and guardrails look at it; `ours`
 * stays here, or goes out as numbers, hashes and words of the interface alone.
 */
export const REQUEST_FIELDS: Readonly<Record<keyof ResponsesRequest, 'said' | 'seen' | 'ours'>> = {
  input: 'said',
  instructions: 'said',
  prompt: 'said',
  image_config: 'said',
  tools: 'seen',
  tool_choice: 'seen',
  text: 'seen',
  reasoning: 'seen',
  // No model reads it, but it leaves the house with some formats.
  metadata: 'seen',
  prompt_cache_key: 'seen',
  prompt_cache_options: 'seen',
  cache_control: 'ours',
  model: 'ours',
  models: 'ours',
  max_output_tokens: 'ours',
  max_tool_calls: 'ours',
  temperature: 'ours',
  top_p: 'ours',
  top_k: 'ours',
  top_logprobs: 'ours',
  frequency_penalty: 'ours',
  presence_penalty: 'ours',
  parallel_tool_calls: 'ours',
  background: 'ours',
  include: 'ours',
  modalities: 'ours',
  plugins: 'ours',
  previous_response_id: 'ours',
  store: 'ours',
  stream: 'ours',
  service_tier: 'ours',
  session_id: 'ours',
  user: 'ours',
  safety_identifier: 'ours',
  debug: 'ours',
  provider: 'ours',
  route: 'ours',
  stop_server_tools_when: 'ours',
  trace: 'ours',
  truncation: 'ours',
  preset: 'ours',
  prediction: 'said',
  stop: 'seen',
  logit_bias: 'seen',
  seed: 'ours',
  min_p: 'ours',
  top_a: 'ours',
  repetition_penalty: 'ours',
}
