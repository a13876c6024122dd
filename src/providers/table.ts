/** The providers known without configuration. Data: a provider is a row, what is special about it a field. Pure. */
import type { Provider } from './provider.ts'

type Row = Pick<Provider, 'slug' | 'name' | 'format' | 'baseUrl'> & Partial<Provider>

function row(fields: Row): Provider {
  return { auth: 'bearer', apiKey: null, quirks: [], headers: {}, onAbort: 'cancel', ...fields }
}

/** In alphabetical order of the slugs. Keys come from configuration or from stored credentials. */
export const PROVIDERS: readonly Provider[] = [
  row({
    slug: 'anthropic',
    name: 'Anthropic',
    format: 'anthropic-messages',
    baseUrl: 'https://api.anthropic.com/v1',
    auth: 'x-api-key',
  }),
  row({
    slug: 'deepseek',
    name: 'DeepSeek',
    format: 'openai-chat',
    baseUrl: 'https://api.deepseek.com/v1',
    quirks: ['max-tokens', 'system-role', 'no-strict-tools', 'replay-reasoning'],
  }),
  row({
    slug: 'fireworks',
    name: 'Fireworks',
    format: 'openai-chat',
    baseUrl: 'https://api.fireworks.ai/inference/v1',
    quirks: ['max-tokens', 'system-role', 'no-strict-tools'],
  }),
  row({
    slug: 'google-ai-studio',
    name: 'Google AI Studio',
    format: 'google-gemini',
    baseUrl: 'https://generativelanguage.googleapis.com/v1beta',
    auth: 'x-goog-api-key',
  }),
  row({
    slug: 'groq',
    name: 'Groq',
    format: 'openai-chat',
    baseUrl: 'https://api.groq.com/openai/v1',
    quirks: ['system-role', 'no-strict-tools'],
  }),
  row({
    slug: 'llamacpp',
    name: 'llama.cpp',
    format: 'openai-chat',
    baseUrl: 'http://127.0.0.1:8080/v1',
    auth: 'none',
    quirks: ['max-tokens', 'system-role'],
  }),
  row({
    slug: 'mistral',
    name: 'Mistral',
    format: 'openai-chat',
    baseUrl: 'https://api.mistral.ai/v1',
    // It sends usage with the last chunk unasked and refuses the option as an unknown field.
    quirks: ['max-tokens', 'no-stream-usage', 'system-role', 'any-tool-choice', 'thinking-parts', 'no-user'],
  }),
  row({
    slug: 'ollama',
    name: 'Ollama',
    format: 'openai-chat',
    baseUrl: 'http://127.0.0.1:11434/v1',
    auth: 'none',
    quirks: ['max-tokens', 'system-role', 'no-strict-tools'],
  }),
  row({ slug: 'openai', name: 'OpenAI', format: 'openai-responses', baseUrl: 'https://api.openai.com/v1' }),
  row({
    slug: 'together',
    name: 'Together',
    format: 'openai-chat',
    baseUrl: 'https://api.together.xyz/v1',
    quirks: ['max-tokens', 'system-role', 'no-strict-tools'],
  }),
  row({
    slug: 'vllm',
    name: 'vLLM',
    format: 'openai-chat',
    baseUrl: 'http://127.0.0.1:8000/v1',
    auth: 'none',
    quirks: ['max-tokens', 'system-role'],
  }),
  row({ slug: 'xai', name: 'xAI', format: 'openai-responses', baseUrl: 'https://api.x.ai/v1' }),
]
