/** A prompt that is too long for a model, in the words of many providers, is one error in every format. */
import t from 'tap'
import { FORMATS } from '../../src/formats/table.ts'
import { recordings, withoutRecordings } from '../support/recordings.ts'

const TOO_LONG: readonly (readonly [string, string, number?])[] = [
  [
    'OpenAI',
    "This model's maximum context length is 4097 tokens. However, your messages resulted in 7575 tokens. Please reduce the length of the messages.",
  ],
  ['OpenAI', 'Your input exceeds the context window of this model. Please adjust your input and try again.'],
  [
    'vLLM',
    "This model's maximum context length is 16384 tokens. However, you requested 122946 tokens (112946 in the messages, 10000 in the completion). Please reduce the length of the messages or completion.",
  ],
  [
    'vLLM',
    "You passed 5000 input tokens and requested 100 output tokens. However, the model's context length is only 4096 tokens, resulting in a maximum input length of 3996 tokens. Please reduce the length of the input prompt.",
  ],
  ['vLLM', 'The decoder prompt (length 5000) is longer than the maximum model length of 4096.'],
  ['vLLM', 'The prompt (total length 25938) is too long to fit into the model (context length 4096).'],
  ['vLLM', "Input length (5000) exceeds model's maximum context length (4096)."],
  ['SGLang', "The input (5000 tokens) is longer than the model's context length (4096 tokens)."],
  ['SGLang', "Requested token count exceeds the model's maximum context length of 4096 tokens."],
  [
    'Text Generation Inference',
    'Input validation error: `inputs` must have less than 4096 tokens. Given: 5000',
    422,
  ],
  [
    'Text Generation Inference',
    'Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens and 200 `max_new_tokens`',
    422,
  ],
  [
    'llama.cpp',
    'the request exceeds the available context size. try increasing the context size or enable context shift',
    500,
  ],
  ['llama.cpp for Python', 'Requested tokens (2285) exceed context window of 2048'],
  ['LM Studio', 'The number of tokens to keep from the initial prompt is greater than the context length.'],
  [
    'LM Studio',
    'Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough.',
  ],
  ['Ollama', 'prompt too long; exceeded max context length by 1119046 tokens'],
  ['Ollama', 'the input length exceeds the context length'],
  [
    'Mistral',
    'Prompt contains 300000 tokens and 0 draft tokens, too large for model with 131072 maximum context length',
  ],
  ['Groq', 'Please reduce the length of the messages or completion.'],
  ['Together', "The input (250000 tokens) is longer than the model's context length (200000 tokens)."],
  [
    'DeepSeek',
    "This model's maximum context length is 131072 tokens. However, you requested 200000 tokens (190000 in the messages, 10000 in the completion).",
  ],
  ['xAI', "This model's maximum prompt length is 131072 but the request contains 537812 tokens."],
  ['Fireworks', 'The prompt is too long: 140000, model maximum context length: 131071'],
  ['Moonshot', 'Your request exceeded model token limit: 262144 (requested: 300000)'],
  ['MiniMax', 'invalid params, context window exceeds limit (2013)'],
  ['Alibaba', 'Range of input length should be [1, 129024]'],
  ['GitHub Copilot', 'prompt token count of 145000 exceeds the limit of 128000'],
  ['Cohere', 'too many tokens: size limit exceeded by 25836 tokens. Try using shorter or fewer inputs.'],
  ['Amazon Bedrock', 'Input is too long for requested model.'],
  ['Amazon Bedrock', 'Too many input tokens. Max input tokens: 8192, request input token count: 9000'],
  ['Gemini', 'The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).'],
  ['Anthropic', 'prompt is too long: 213462 tokens > 200000 maximum'],
  ['Anthropic', 'input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000'],
]

const OTHER: readonly (readonly [string, number?])[] = [
  [
    "'max_tokens' or 'max_completion_tokens' is too large: 2000. This model's maximum context length is 4096 tokens and your request has 2104 input tokens (2000 > 4096 - 2104).",
  ],
  [
    'max_tokens is too large: 100000. This model supports at most 4096 completion tokens, whereas you provided 100000.',
  ],
  [
    '`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than the `context_window` for this model',
  ],
  ['max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens for this model'],
  [
    'Request too large for model `x` on tokens per minute (TPM): Limit 6000, Requested 6500, please reduce your message size and try again.',
    413,
  ],
  ["Invalid 'messages[0].name': string does not match the pattern."],
  ['messages.1.content: Input should be a valid string'],
  ['The context window of this model cannot be changed'],
  ['tools.0.name: String should have at most 64 characters'],
]

/** As each format has an error of no particular kind. */
const BODIES: Readonly<Record<keyof typeof FORMATS, (message: string) => object>> = {
  'openai-chat': message => ({ error: { message, type: 'invalid_request_error', param: null, code: null } }),
  'openai-responses': message => ({
    error: { message, type: 'invalid_request_error', param: 'input', code: null },
  }),
  'anthropic-messages': message => ({ type: 'error', error: { type: 'invalid_request_error', message } }),
  'google-gemini': message => ({ error: { code: 400, message, status: 'INVALID_ARGUMENT' } }),
  'bedrock-converse': message => ({ message }),
}

for (const [name, format] of Object.entries(FORMATS)) {
  t.test(`${name}: a prompt that is too long`, async t => {
    const body = BODIES[name as keyof typeof FORMATS]
    for (const [provider, message, status = 400] of TOO_LONG) {
      const { code } = format.failure(status, JSON.stringify(body(message)))
      t.equal(code, 'context_length_exceeded', `${provider}: ${message}`)
    }
    for (const [message, status = 400] of OTHER) {
      const { code } = format.failure(status, JSON.stringify(body(message)))
      t.not(code, 'context_length_exceeded', message)
    }
    for (const status of [401, 403, 404, 429, 503]) {
      const { code } = format.failure(status, JSON.stringify(body('prompt is too long')))
      t.not(code, 'context_length_exceeded', `status ${status}`)
    }
  })
}

t.test('codes for it, and bodies of other forms', async t => {
  const { failure } = FORMATS['openai-chat']
  const codeOf = (status: number, body: object) => failure(status, JSON.stringify(body)).code
  const llama = {
    code: 400,
    message: 'no',
    type: 'exceed_context_size_error',
    n_prompt_tokens: 1407,
    n_ctx: 256,
  }
  t.equal(codeOf(400, { error: llama }), 'context_length_exceeded')
  t.equal(
    codeOf(400, { error: { message: 'no', code: 'model_context_window_exceeded' } }),
    'context_length_exceeded',
  )
  const mistral = {
    object: 'error',
    message: 'Prompt contains 9 tokens, too large for model with 8 maximum context length',
    type: 'invalid_request_prompt',
    param: null,
    code: '3051',
  }
  t.equal(codeOf(400, mistral), 'context_length_exceeded')
  t.equal(codeOf(400, { error: 'the input length exceeds the context length' }), 'context_length_exceeded')
  t.equal(
    codeOf(400, { detail: 'The prompt is too long: 9, model maximum context length: 8' }),
    'context_length_exceeded',
  )
})

t.test('as it was recorded', { skip: withoutRecordings }, async t => {
  let found = 0
  for (const name of ['openai-chat', 'openai-responses'] as const) {
    for (const recording of recordings(name)) {
      const { file } = recording
      if (!/handles-context-le.*json$/.test(file)) continue
      t.equal(FORMATS[name].failure(400, String(recording.bytes())).code, 'context_length_exceeded', file)
      found++
    }
  }
  t.equal(found, 3)
})
