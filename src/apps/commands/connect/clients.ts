/** How to connect each client to a gateway: one row per client, with lines that work when pasted. Pure. */

/** The part of a model that clients need to know. */
export interface ConnectModel {
  readonly id: string
  /** In tokens; null: unknown. */
  readonly contextLength: number | null
  /** In tokens; null: unknown. */
  readonly maxOutputTokens: number | null
}

/** Facts of the gateway that the lines contain. */
interface ConnectFacts {
  /** Without `/v1`. */
  readonly url: string
  readonly model: ConnectModel
}

export interface Client {
  readonly name: string
  /** The name that its makers use. */
  readonly title: string
  /** The API that it calls. */
  readonly api: string
  /** The place for the lines: a shell, or a file. */
  readonly place: string
  lines(facts: ConnectFacts): readonly string[]
  /** Facts that the client cannot discover; empty: none. */
  notes(facts: ConnectFacts): readonly string[]
}

/** The client compacts its conversation when this part of the context is used. */
const COMPACT_SHARE = 0.9

const NO_LINES: readonly string[] = []

/** The lines never contain the key: they name the variable that has it. */
export const CLIENTS: readonly Client[] = [
  {
    name: 'claude-code',
    title: 'Claude Code',
    api: 'Messages',
    place: 'shell',
    lines: ({ url, model }) => [
      `export ANTHROPIC_BASE_URL=${url} ANTHROPIC_AUTH_TOKEN=$KEY`,
      `export ANTHROPIC_DEFAULT_OPUS_MODEL=${model.id} ANTHROPIC_DEFAULT_SONNET_MODEL=${model.id}`,
      `export ANTHROPIC_DEFAULT_HAIKU_MODEL=${model.id}`,
      ...(model.contextLength === null
        ? NO_LINES
        : [`export CLAUDE_CODE_AUTO_COMPACT_WINDOW=${model.contextLength}`]),
      'claude',
    ],
    notes: () => [
      'Claude Code assumes that a model it does not know has a context of a million tokens. CLAUDE_CODE_AUTO_COMPACT_WINDOW tells it when to compact; Claude Code raises any value below 100000 to 100000.',
      'Claude Code uses three models: a large, a medium and a small one. Each variable that ends in MODEL can name any model of the gateway. The small model writes titles and summaries.',
    ],
  },
  {
    name: 'codex',
    title: 'Codex',
    api: 'Responses, by SSE or WebSocket',
    place: '~/.codex/config.toml',
    lines: ({ url, model }) => [
      `model = "${model.id}"`,
      'model_provider = "sluice"',
      ...(model.contextLength === null
        ? NO_LINES
        : [
            `model_context_window = ${model.contextLength}`,
            `model_auto_compact_token_limit = ${Math.floor(model.contextLength * COMPACT_SHARE)}`,
          ]),
      '',
      '[model_providers.sluice]',
      'name = "Sluice"',
      `base_url = "${url}/v1"`,
      'env_key = "KEY"',
      'wire_api = "responses"',
      'supports_websockets = true',
    ],
    notes: ({ model }) => [
      'Without `supports_websockets`, Codex uses SSE. It uses the compaction of the gateway only if `name` is "OpenAI". Otherwise it asks the model for a summary, which works as well.',
      ...(model.contextLength === null
        ? [
            'The context length of this model is unknown: set model_context_window and model_auto_compact_token_limit.',
          ]
        : NO_LINES),
    ],
  },
  {
    name: 'gemini-cli',
    title: 'Gemini CLI',
    api: 'Gemini',
    place: 'shell',
    lines: ({ url, model }) => [
      `export GOOGLE_GEMINI_BASE_URL=${url} GEMINI_API_KEY=$KEY`,
      `export GEMINI_MODEL=${model.id}`,
      'gemini',
    ],
    notes: ({ model }) => [
      'Without a terminal (`gemini -p`) it also needs {"security":{"auth":{"selectedType":"gemini-api-key"}}} in ~/.gemini/settings.json.',
      `Gemini CLI also calls models by its own names, such as gemini-3.1-pro-preview and gemini-3.5-flash-lite. Make them aliases in the row of ${model.id}: aliases: [gemini-3.1-pro-preview, gemini-3.5-flash-lite].`,
    ],
  },
  {
    name: 'opencode',
    title: 'opencode',
    api: 'chat completions',
    place: 'opencode.json',
    lines: ({ url, model }) =>
      JSON.stringify(
        {
          $schema: 'https://opencode.ai/config.json',
          model: `sluice/${model.id}`,
          provider: {
            sluice: {
              npm: '@ai-sdk/openai-compatible',
              options: { baseURL: `${url}/v1`, apiKey: '{env:KEY}' },
              models: { [model.id]: limitOf(model) },
            },
          },
        },
        null,
        2,
      ).split('\n'),
    notes: () => NO_LINES,
  },
  {
    name: 'qwen-code',
    title: 'Qwen Code',
    api: 'chat completions',
    place: 'shell',
    lines: ({ url, model }) => [
      `export OPENAI_BASE_URL=${url}/v1 OPENAI_API_KEY=$KEY`,
      `export OPENAI_MODEL=${model.id}`,
      'qwen',
    ],
    notes: () => NO_LINES,
  },
  {
    name: 'continue',
    title: 'Continue',
    api: 'chat completions',
    place: '~/.continue/config.yaml',
    lines: ({ url, model }) => [
      'name: sluice',
      'version: 0.0.1',
      'schema: v1',
      'models:',
      `  - name: ${model.id}`,
      '    provider: openai',
      `    model: ${model.id}`,
      `    apiBase: ${url}/v1`,
      '    apiKey: ${{ secrets.KEY }}',
      '    roles: [chat, edit, apply]',
      ...continueLimits(model),
    ],
    notes: () => ['`secrets.KEY` is read from ~/.continue/.env, a line KEY=…'],
  },
  {
    name: 'cline',
    title: 'Cline',
    api: 'chat completions',
    place: 'shell',
    lines: ({ url, model }) => [
      `cline auth -p openai -k $KEY -m ${model.id} -b ${url}/v1`,
      `cline -P openai -m ${model.id}`,
    ],
    notes: ({ url, model }) => [
      `In an editor: API provider "OpenAI Compatible", base URL ${url}/v1, the key, and model ID ${model.id}.`,
    ],
  },
  {
    name: 'pi',
    title: 'pi',
    api: 'chat completions',
    place: '~/.pi/agent/models.json',
    lines: ({ url, model }) =>
      JSON.stringify(
        {
          providers: {
            sluice: {
              baseUrl: `${url}/v1`,
              api: 'openai-completions',
              apiKey: 'KEY',
              models: [{ id: model.id, ...piLimits(model) }],
            },
          },
        },
        null,
        2,
      ).split('\n'),
    notes: ({ model }) => [
      `Then run: pi --provider sluice --model ${model.id}. "KEY" is the name of the environment variable that pi reads.`,
    ],
  },
  {
    name: 'openai-sdk',
    title: 'OpenAI SDKs',
    api: 'Responses, chat completions, embeddings',
    place: 'shell',
    lines: ({ url, model }) => [
      `export OPENAI_BASE_URL=${url}/v1 OPENAI_API_KEY=$KEY`,
      `node --input-type=module -e "import OpenAI from 'openai'; console.log((await new OpenAI().responses.create({ model: '${model.id}', input: 'Hello' })).output_text)"`,
    ],
    notes: () => ['The Python SDK reads the same two variables.'],
  },
  {
    name: 'anthropic-sdk',
    title: 'Anthropic SDKs',
    api: 'Messages',
    place: 'shell',
    lines: ({ url, model }) => [
      `export ANTHROPIC_BASE_URL=${url} ANTHROPIC_API_KEY=$KEY`,
      `node --input-type=module -e "import Anthropic from '@anthropic-ai/sdk'; console.log((await new Anthropic().messages.create({ model: '${model.id}', max_tokens: 100, messages: [{ role: 'user', content: 'Hello' }] })).content[0].text)"`,
    ],
    notes: () => ['The address has no /v1: the SDK adds it.'],
  },
  {
    name: 'google-sdk',
    title: '@google/genai',
    api: 'Gemini',
    place: 'shell',
    lines: ({ url, model }) => [
      `export GOOGLE_GEMINI_BASE_URL=${url} GEMINI_API_KEY=$KEY`,
      `node --input-type=module -e "import { GoogleGenAI } from '@google/genai'; console.log((await new GoogleGenAI({}).models.generateContent({ model: '${model.id}', contents: 'Hello' })).text)"`,
    ],
    notes: () => NO_LINES,
  },
  {
    name: 'langchain',
    title: 'LangChain',
    api: 'chat completions',
    place: 'shell',
    lines: ({ url, model }) => [
      `export OPENAI_BASE_URL=${url}/v1 OPENAI_API_KEY=$KEY`,
      'npm install --no-save @langchain/openai @langchain/core',
      `node --input-type=module -e "import { env } from 'node:process'; import { ChatOpenAI } from '@langchain/openai'; console.log((await new ChatOpenAI({ model: '${model.id}', configuration: { baseURL: env.OPENAI_BASE_URL } }).invoke('Hello')).content)"`,
    ],
    notes: () => [
      'With useResponsesApi: true, LangChain uses the Responses API. In Python: ChatOpenAI(base_url=…, api_key=…).',
    ],
  },
  {
    name: 'openai-agents',
    title: 'OpenAI Agents SDK',
    api: 'Responses',
    place: 'shell',
    lines: ({ url, model }) => [
      `export OPENAI_BASE_URL=${url}/v1 OPENAI_API_KEY=$KEY OPENAI_AGENTS_DISABLE_TRACING=1`,
      'npm install --no-save @openai/agents zod',
      `node --input-type=module -e "import { Agent, run } from '@openai/agents'; console.log((await run(new Agent({ name: 'Helper', model: '${model.id}' }), 'Hello')).finalOutput)"`,
    ],
    notes: () => [
      'By default the SDK sends its traces to OpenAI, with the key of the gateway. OPENAI_AGENTS_DISABLE_TRACING turns that off.',
    ],
  },
  {
    name: 'ai-sdk',
    title: 'AI SDK',
    api: 'chat completions',
    place: 'shell',
    lines: ({ url, model }) => [
      `export OPENAI_BASE_URL=${url}/v1 OPENAI_API_KEY=$KEY`,
      'npm install --no-save ai @ai-sdk/openai-compatible zod',
      `node --input-type=module -e "import { env } from 'node:process'; import { generateText } from 'ai'; import { createOpenAICompatible } from '@ai-sdk/openai-compatible'; const sluice = createOpenAICompatible({ name: 'sluice', baseURL: env.OPENAI_BASE_URL, apiKey: env.OPENAI_API_KEY }); console.log((await generateText({ model: sluice('${model.id}'), prompt: 'Hello' })).text)"`,
    ],
    notes: () => NO_LINES,
  },
]

function limitOf({ contextLength, maxOutputTokens }: ConnectModel): object {
  if (contextLength === null) return {}
  return { limit: { context: contextLength, output: maxOutputTokens ?? contextLength } }
}

function piLimits({ contextLength, maxOutputTokens }: ConnectModel): object {
  if (contextLength === null) return {}
  return { contextWindow: contextLength, maxTokens: maxOutputTokens ?? contextLength }
}

function continueLimits({ contextLength, maxOutputTokens }: ConnectModel): readonly string[] {
  if (contextLength === null) return NO_LINES
  return [
    '    defaultCompletionOptions:',
    `      contextLength: ${contextLength}`,
    ...(maxOutputTokens === null ? NO_LINES : [`      maxTokens: ${maxOutputTokens}`]),
  ]
}
