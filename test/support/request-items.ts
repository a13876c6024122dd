/** Requests that contain one of everything in the interface; every string is marked as text or not text. */
export type Fields = Readonly<Record<string, unknown>>

/** What a model reads, and what it does not. */
export const T = '+'
export const X = '-'
/** A link to something, which a provider follows if anybody does. */
const LINK = 'https://x.example/-'

export const PARTS = [
  { type: 'input_text', text: `${T}said`, cache_control: { type: 'ephemeral' } },
  { type: 'input_image', image_url: LINK, detail: 'auto', file_id: X },
  { type: 'input_file', file_data: X, file_id: X, file_url: LINK, filename: `${T}filename` },
  { type: 'input_audio', input_audio: { data: X, format: 'mp3' } },
  { type: 'input_video', video_url: LINK },
]
export const ANNOTATIONS = [
  { type: 'url_citation', url: `${T}url`, title: `${T}title`, content: `${T}cited` },
  { type: 'file_citation', file_id: X, filename: `${T}cited file` },
  { type: 'file_path', file_id: X },
  { type: 'container_file_citation', container_id: X, file_id: X, filename: `${T}made file` },
  {
    type: 'file',
    file: {
      hash: X,
      name: `${T}parsed name`,
      content: [
        { type: 'text', text: `${T}parsed` },
        { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } },
      ],
    },
  },
  { type: `${T}unheard_of`, note: `${T}unheard of` },
]
export const SCHEMA = {
  type: 'object',
  description: `${T}schema`,
  properties: {
    name: { type: 'string', title: `${T}title`, enum: [`${T}one`, `${T}two`] },
    description: { type: 'string', description: `${T}nested`, default: { type: `${T}whatever` } },
    id: {
      type: ['string', 'null'],
      const: `${T}const`,
      examples: [`${T}example`],
      pattern: `${T}pattern`,
      format: 'email',
    },
  },
  required: ['name', `${T}no property`],
}
export const UNKNOWN = { unheard_of: { deeply: [`${T}unheard of`] } }

/** One of each kind, with all its fields. */
export const ITEMS: Readonly<Record<string, Fields>> = {
  message: { role: 'user', id: X, status: 'completed', phase: 'commentary', content: PARTS },
  reasoning: {
    id: X,
    summary: [{ type: 'summary_text', text: `${T}summary` }],
    content: [{ type: 'reasoning_text', text: `${T}thought` }],
    encrypted_content: X,
    status: 'completed',
    format: X,
    signature: X,
  },
  function_call: {
    call_id: X,
    name: X,
    arguments: `${T}arguments`,
    id: X,
    status: 'completed',
    namespace: X,
    async: true,
    subagent_id: X,
    subagent_items: [{ type: 'message', role: 'user', content: `${T}of a subagent` }],
  },
  function_call_output: { call_id: X, output: PARTS, id: X, status: 'completed', is_error: true },
  custom_tool_call: {
    call_id: X,
    name: X,
    input: `${T}input`,
    id: X,
    status: 'completed',
    namespace: X,
    async: true,
  },
  custom_tool_call_output: { call_id: X, output: `${T}output`, id: X, status: 'completed', is_error: true },
  tool_search_call: {
    call_id: X,
    execution: 'client',
    arguments: { query: `${T}query` },
    id: X,
    status: 'completed',
  },
  tool_search_output: {
    call_id: X,
    execution: 'client',
    tools: [{ type: 'function', name: X, description: `${T}description`, parameters: null }],
    id: X,
    status: 'completed',
  },
  apply_patch_call: {
    call_id: X,
    operation: { type: 'create_file', path: `${T}path`, diff: `${T}diff` },
    status: 'completed',
    id: X,
  },
  apply_patch_call_output: { call_id: X, status: 'completed', output: `${T}output`, id: X },
  local_shell_call: {
    call_id: X,
    id: X,
    status: 'completed',
    action: {
      type: 'exec',
      command: [`${T}command`],
      env: { name: `${T}variable`, id: `${T}another` },
      user: `${T}user`,
      working_directory: `${T}folder`,
    },
  },
  local_shell_call_output: { id: X, output: `${T}output`, status: 'completed' },
  shell_call: {
    call_id: X,
    action: { commands: [`${T}command`] },
    id: X,
    status: 'completed',
    arguments: `${T}arguments`,
    environment: { type: `${T}anything` },
  },
  shell_call_output: {
    call_id: X,
    output: [{ stdout: `${T}out`, stderr: `${T}err`, outcome: { type: 'exit', exit_code: 0 } }],
    id: X,
    status: 'completed',
    max_output_length: 1,
    container_id: X,
    files: [{ path: `${T}path`, file_id: `${T}file` }],
    error: `${T}error`,
  },
  compaction: { encrypted_content: X, id: X },
  context_compaction: { encrypted_content: X, id: X },
  item_reference: { id: X },
  additional_tools: {
    role: 'developer',
    tools: [{ type: 'function', name: X, description: `${T}description`, parameters: SCHEMA }],
    id: X,
  },
  agent_message: {
    author: X,
    recipient: X,
    content: [
      { type: 'input_text', text: `${T}text` },
      { type: 'encrypted_content', encrypted_content: X },
    ],
    agent: { agent_name: X },
    id: X,
  },
  configuration_update: { reasoning: { effort: 'low' }, id: X },
  mcp_list_tools: {
    id: X,
    server_label: X,
    tools: [
      { name: X, input_schema: SCHEMA, description: `${T}description`, annotations: { title: `${T}hint` } },
    ],
    error: { message: `${T}error` },
  },
  mcp_approval_request: { id: X, name: X, arguments: `${T}arguments`, server_label: X },
  mcp_approval_response: { approval_request_id: X, approve: true, id: X, reason: `${T}reason` },
  mcp_call: {
    id: X,
    name: X,
    arguments: `${T}arguments`,
    server_label: X,
    output: `${T}output`,
    error: { message: `${T}error` },
  },
  computer_call: {
    call_id: X,
    status: 'completed',
    pending_safety_checks: [{ id: X, code: `${T}code`, message: `${T}message` }],
    action: { type: `${T}kind`, text: `${T}typed` },
    id: X,
  },
  computer_call_output: {
    call_id: X,
    output: { type: 'computer_screenshot', image_url: LINK, file_id: X },
    acknowledged_safety_checks: [{ id: `${T}id`, message: `${T}message` }],
    id: X,
    status: 'completed',
  },
  web_search_call: {
    id: X,
    status: 'completed',
    action: { type: 'search', query: `${T}query`, sources: [{ type: 'url', url: `${T}source` }] },
  },
  file_search_call: {
    id: X,
    queries: [`${T}query`],
    status: 'completed',
    results: [
      { file_id: `${T}id`, filename: `${T}file`, text: `${T}found`, attributes: { id: `${T}attribute` } },
    ],
  },
  image_generation_call: { id: X, status: 'completed', result: X, prompt: `${T}prompt` },
  code_interpreter_call: {
    id: X,
    status: 'completed',
    code: `${T}code`,
    container_id: X,
    outputs: [
      { type: 'logs', logs: `${T}logs` },
      { type: 'image', url: `data:image/png;base64,${X}` },
      { type: 'file', id: X, filename: `${T}file` },
    ],
  },
  'gateway:web_search': {
    action: { type: 'search', query: `${T}query`, sources: [{ type: 'url', url: `${T}source` }] },
  },
  'gateway:web_fetch': {
    url: `${T}url`,
    title: `${T}title`,
    content: `${T}content`,
    httpStatus: 200,
    error: `${T}error`,
  },
  'gateway:datetime': { datetime: `${T}now`, timezone: `${T}zone` },
  'gateway:image_generation': {
    result: X,
    imageUrl: `${T}url`,
    imageB64: X,
    prompt: `${T}prompt`,
    revisedPrompt: `${T}revised`,
  },
  'gateway:fusion': {
    analysis: { consensus: [`${T}consensus`] },
    responses: [{ model: `${T}model`, content: `${T}content` }],
    failed_models: [{ model: `${T}failed`, error: `${T}why` }],
    sources: [{ title: `${T}source` }],
    error: `${T}error`,
    failure_reason: `${T}reason`,
  },
  'gateway:advisor': {
    advice: `${T}advice`,
    prompt: `${T}prompt`,
    model: `${T}model`,
    instance_name: `${T}instance`,
    error: `${T}error`,
  },
  'gateway:subagent': {
    call_id: X,
    task_name: `${T}task`,
    task_description: `${T}description`,
    outcome: `${T}outcome`,
    model: `${T}model`,
    name: `${T}name`,
    instance_name: `${T}instance`,
    error: `${T}error`,
  },
  'gateway:bash': {
    command: `${T}command`,
    stdout: `${T}out`,
    stderr: `${T}err`,
    exitCode: 0,
    arguments: `${T}arguments`,
    call_id: X,
    container_id: `${T}container`,
    files: [{ path: `${T}path` }],
    error: `${T}error`,
  },
  'gateway:shell': {
    action: { commands: [`${T}command`] },
    output: [{ stdout: `${T}out` }],
    arguments: `${T}arguments`,
    call_id: X,
    container_id: `${T}container`,
    files: [{ path: `${T}path` }],
    error: `${T}error`,
  },
  'gateway:apply_patch': { call_id: X, operation: { type: 'delete_file', path: `${T}path` } },
  'gateway:files': {
    operation: `${T}operation`,
    file_id: `${T}id`,
    filename: `${T}file`,
    result: `${T}result`,
    error: `${T}error`,
    arguments: `${T}arguments`,
    call_id: X,
  },
  'gateway:experimental__search_models': { query: `${T}query`, arguments: `${T}arguments` },
  'gateway:tool_search': { query: `${T}query` },
  'gateway:code_interpreter': {
    code: `${T}code`,
    language: `${T}language`,
    stdout: `${T}out`,
    stderr: `${T}err`,
    exitCode: 0,
    container_id: `${T}container`,
    files: [{ path: `${T}path` }],
  },
  'gateway:file_search': { queries: [`${T}query`] },
  'gateway:browser_use': { action: `${T}action`, screenshotB64: X },
  'gateway:text_editor': { command: 'view', filePath: `${T}path` },
  'gateway:memory': { action: 'read', key: `${T}key`, value: `${T}value` },
  'gateway:mcp': { serverLabel: `${T}label`, toolName: `${T}tool` },
}

const tool = (type: string, fields: Fields = {}): Fields => ({ type, ...fields })

/** Tools that have texts. */
export const TOOLS: readonly Fields[] = [
  tool('function', { name: X, description: `${T}f`, parameters: SCHEMA, output_schema: SCHEMA }),
  tool('custom', {
    name: X,
    description: `${T}c`,
    format: { type: 'grammar', syntax: 'lark', definition: `${T}grammar` },
  }),
  tool('namespace', {
    name: X,
    description: `${T}n`,
    tools: [tool('function', { name: X, description: `${T}inner` })],
  }),
  tool('mcp', {
    server_label: X,
    server_description: `${T}server`,
    server_url: X,
    authorization: X,
    headers: { authorization: X },
    allowed_tools: [X],
  }),
  tool('file_search', { vector_store_ids: [X], filters: { type: 'eq', key: X, value: `${T}value` } }),
  tool('gateway:advisor', { parameters: { name: X, model: X, instructions: `${T}advise` } }),
  tool('gateway:subagent', { parameters: { name: X, instructions: `${T}work` } }),
]
