/**
 * Settings that models of a provider take, if they differ: the first rule that matches a model's name counts. Without a
 * rule, a model takes the settings of its format. Providers refuse requests with any other setting. Data.
 */
import type { ModelRule, RefusableName } from '../../protocol/provider.ts'

/** Models without a setting for efforts, whether they think or not. */
const NO_EFFORTS = [] as const
const USUAL_EFFORTS = ['low', 'medium', 'high'] as const

/** Settings that OpenAI's models refuse while they think. The gateway looks for stop sequences itself. */
const SAMPLING_SETTINGS: readonly RefusableName[] = [
  'temperature',
  'top_p',
  'presence_penalty',
  'frequency_penalty',
  'logit_bias',
  'top_logprobs',
  'stop',
]

/** https://platform.openai.com/docs/guides/reasoning, .../guides/latest-model and the page of each model */
export const GPT_MODELS: readonly ModelRule[] = [
  { models: /gpt-5-chat|gpt-4|gpt-3\.5|o1-(?:mini|preview)/, efforts: NO_EFFORTS },
  { models: /gpt-5\.\d+-chat|deep-research/, efforts: ['medium'] },
  { models: /gpt-5-pro/, efforts: ['high'], refuses: SAMPLING_SETTINGS },
  { models: /gpt-5\.\d+-pro/, efforts: ['medium', 'high', 'xhigh'], refuses: SAMPLING_SETTINGS },
  { models: /gpt-5\.1-codex-max/, efforts: [...USUAL_EFFORTS, 'xhigh'], refuses: SAMPLING_SETTINGS },
  { models: /gpt-5(?:\.1)?-codex/, efforts: USUAL_EFFORTS, refuses: SAMPLING_SETTINGS },
  { models: /gpt-5\.\d+-codex/, efforts: [...USUAL_EFFORTS, 'xhigh'], refuses: SAMPLING_SETTINGS },
  { models: /gpt-5\.1(?!\d)/, efforts: ['none', ...USUAL_EFFORTS], refusesThinking: SAMPLING_SETTINGS },
  {
    models: /gpt-5\.[2-5](?!\d)/,
    efforts: ['none', ...USUAL_EFFORTS, 'xhigh'],
    refusesThinking: SAMPLING_SETTINGS,
  },
  {
    models: /gpt-5\.\d/,
    efforts: ['none', ...USUAL_EFFORTS, 'xhigh', 'max'],
    refusesThinking: SAMPLING_SETTINGS,
  },
  { models: /gpt-5/, efforts: ['minimal', ...USUAL_EFFORTS], refuses: SAMPLING_SETTINGS },
  { models: /gpt-6/, efforts: [...USUAL_EFFORTS, 'xhigh', 'max'], refuses: SAMPLING_SETTINGS },
  { models: /gpt-oss/, efforts: USUAL_EFFORTS },
  { models: /(?:^|\/)o[134](?!\d)/, efforts: USUAL_EFFORTS, refuses: SAMPLING_SETTINGS },
]

/** Settings that reasoning models of xAI refuse with 400. */
const GROK_REFUSES: readonly RefusableName[] = ['presence_penalty', 'frequency_penalty', 'stop']

/** https://docs.x.ai/developers/model-capabilities/text/reasoning */
export const GROK_MODELS: readonly ModelRule[] = [
  { models: /grok-3-mini/, efforts: ['low', 'high'], refuses: GROK_REFUSES },
  { models: /grok-4\.20-multi-agent/, efforts: [...USUAL_EFFORTS, 'xhigh'], refuses: GROK_REFUSES },
  { models: /grok-4\.3/, efforts: ['none', ...USUAL_EFFORTS], refuses: GROK_REFUSES },
  { models: /grok-(?:4\.[5-9]|[5-9])/, efforts: USUAL_EFFORTS, refuses: GROK_REFUSES },
  { models: /grok-4/, efforts: NO_EFFORTS, refuses: GROK_REFUSES },
  { models: /grok/, efforts: NO_EFFORTS },
]

/** https://api-docs.deepseek.com/guides/thinking_mode */
export const DEEPSEEK_MODELS: readonly ModelRule[] = [
  { models: /reasoner/, efforts: NO_EFFORTS },
  { models: /deepseek/, efforts: ['none', 'high', 'max'] },
]

/** https://console.groq.com/docs/reasoning. Qwen thinks unless it is told `none`. */
export const GROQ_MODELS: readonly ModelRule[] = [
  { models: /gpt-oss/, efforts: USUAL_EFFORTS },
  { models: /qwen3|qwen-3/, efforts: ['none'] },
  { models: /./, efforts: NO_EFFORTS },
]

/** Settings that Mistral does not know, and refuses with 422. */
const MISTRAL_REFUSES: readonly RefusableName[] = [
  'top_k',
  'min_p',
  'top_a',
  'repetition_penalty',
  'logit_bias',
  'top_logprobs',
  'seed',
]

/** https://docs.mistral.ai/capabilities/reasoning/ */
export const MISTRAL_MODELS: readonly ModelRule[] = [
  {
    models: /mistral-small-(?:latest|4|26)|mistral-medium-(?:3(?!-?1)|26)|magistral-small-latest/,
    efforts: ['none', 'high'],
    refuses: MISTRAL_REFUSES,
  },
  { models: /./, efforts: NO_EFFORTS, refuses: MISTRAL_REFUSES },
]

/** The models always think. */
export const KIMI_MODELS: readonly ModelRule[] = [{ models: /kimi-k3/, efforts: ['low', 'high', 'max'] }]
