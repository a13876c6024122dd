/**
 * The built-in providers, one row each. The compiler asks for a row for each slug of the public enumeration. Pure.
 */
import type { ProviderSlug } from '../protocol/provider-slugs.ts'
import { AUTH_OF_FORMAT, type Provider } from './provider.ts'

/** Servers beside the gateway. The enumeration lacks them, so the gateway stores no credentials for them. */
type LocalSlug = 'llamacpp' | 'vllm'

/** A provider that serves only after the operator has configured its format and base URL. */
interface NamedRow {
  readonly name: string
  /** The environment variable that holds the service's key where the configuration gives none. */
  readonly keyVariable?: string
}

/** A provider that needs only a key. Its format sets the auth scheme, unless the row does. */
interface ServingRow
  extends Pick<Provider, 'name' | 'format' | 'baseUrl'>,
    Pick<NamedRow, 'keyVariable'>,
    Partial<Pick<Provider, 'auth' | 'quirks' | 'headers'>> {}

/** In alphabetical order of the slugs. Keys come from configuration or from stored credentials. */
const ROWS: Readonly<Record<ProviderSlug | LocalSlug, NamedRow | ServingRow>> = {
  ai21: { name: 'AI21', keyVariable: 'AI21_API_KEY' },
  'aion-labs': { name: 'AionLabs' },
  akashml: { name: 'AkashML' },
  alibaba: { name: 'Alibaba' },
  'amazon-bedrock': { name: 'Amazon Bedrock' },
  'amazon-bedrock/claude-on-aws': { name: 'Amazon Bedrock (Claude on AWS)' },
  'amazon-nova': { name: 'Amazon Nova' },
  ambient: { name: 'Ambient' },
  anthropic: {
    name: 'Anthropic',
    keyVariable: 'ANTHROPIC_API_KEY',
    format: 'anthropic-messages',
    baseUrl: 'https://api.anthropic.com/v1',
  },
  'anthropic/2': { name: 'Anthropic 2' },
  'arcee-ai': { name: 'Arcee AI' },
  assemblyai: { name: 'AssemblyAI' },
  'atlas-cloud': { name: 'AtlasCloud' },
  avian: { name: 'Avian' },
  azure: { name: 'Azure' },
  baidu: { name: 'Baidu' },
  baseten: { name: 'BaseTen' },
  'black-forest-labs': { name: 'Black Forest Labs' },
  byteplus: { name: 'BytePlus' },
  cerebras: { name: 'Cerebras', keyVariable: 'CEREBRAS_API_KEY' },
  chutes: { name: 'Chutes' },
  cirrascale: { name: 'Cirrascale' },
  clarifai: { name: 'Clarifai' },
  'claude-on-aws': { name: 'Claude on AWS' },
  cloudflare: { name: 'Cloudflare' },
  cohere: {
    name: 'Cohere',
    keyVariable: 'COHERE_API_KEY',
    format: 'cohere-embeddings',
    baseUrl: 'https://api.cohere.com/v2',
  },
  coreweave: { name: 'CoreWeave' },
  cosine: { name: 'Cosine' },
  crusoe: { name: 'Crusoe' },
  darkbloom: { name: 'Darkbloom' },
  databricks: { name: 'Databricks' },
  decart: { name: 'Decart' },
  deepgram: { name: 'Deepgram' },
  deepinfra: { name: 'DeepInfra' },
  deepseek: {
    name: 'DeepSeek',
    keyVariable: 'DEEPSEEK_API_KEY',
    format: 'openai-chat',
    baseUrl: 'https://api.deepseek.com/v1',
    quirks: ['max-tokens', 'system-role', 'no-strict-tools', 'replay-reasoning'],
  },
  dekallm: { name: 'DekaLLM' },
  digitalocean: { name: 'DigitalOcean' },
  featherless: { name: 'Featherless' },
  fireworks: {
    name: 'Fireworks',
    keyVariable: 'FIREWORKS_API_KEY',
    format: 'openai-chat',
    baseUrl: 'https://api.fireworks.ai/inference/v1',
    quirks: ['max-tokens', 'system-role', 'no-strict-tools'],
  },
  'fish-audio': { name: 'Fish Audio' },
  friendli: { name: 'Friendli' },
  gmicloud: { name: 'GMICloud' },
  'google-ai-studio': {
    name: 'Google AI Studio',
    keyVariable: 'GEMINI_API_KEY',
    format: 'google-gemini',
    baseUrl: 'https://generativelanguage.googleapis.com/v1beta',
  },
  'google-vertex': { name: 'Google' },
  groq: {
    name: 'Groq',
    keyVariable: 'GROQ_API_KEY',
    format: 'openai-chat',
    baseUrl: 'https://api.groq.com/openai/v1',
    quirks: ['system-role', 'no-strict-tools'],
  },
  heygen: { name: 'HeyGen' },
  inception: { name: 'Inception' },
  inceptron: { name: 'Inceptron' },
  'inferact-vllm': { name: 'Inferact vLLM' },
  'inference-net': { name: 'InferenceNet' },
  infermatic: { name: 'Infermatic' },
  inflection: { name: 'Inflection' },
  'io-net': { name: 'Io Net' },
  ionstream: { name: 'Ionstream' },
  krea: { name: 'Krea' },
  liquid: { name: 'Liquid' },
  llamacpp: {
    name: 'llama.cpp',
    format: 'openai-chat',
    baseUrl: 'http://127.0.0.1:8080/v1',
    auth: 'none',
    quirks: ['max-tokens', 'system-role'],
  },
  makora: { name: 'Makora' },
  mancer: { name: 'Mancer' },
  mara: { name: 'Mara' },
  meta: { name: 'Meta' },
  minimax: { name: 'Minimax' },
  mistral: {
    name: 'Mistral',
    keyVariable: 'MISTRAL_API_KEY',
    format: 'openai-chat',
    baseUrl: 'https://api.mistral.ai/v1',
    // It sends usage with the last chunk unasked and refuses the option as an unknown field.
    quirks: [
      'max-tokens',
      'no-stream-usage',
      'system-role',
      'any-tool-choice',
      'thinking-parts',
      'no-user',
      'output-dimension',
      'float-vectors',
    ],
  },
  modal: { name: 'Modal' },
  modelrun: { name: 'ModelRun' },
  modular: { name: 'Modular' },
  moonshotai: { name: 'Moonshot AI', keyVariable: 'MOONSHOT_API_KEY' },
  morph: { name: 'Morph' },
  'near-ai': { name: 'NEAR AI' },
  nebius: { name: 'Nebius', keyVariable: 'NEBIUS_API_KEY' },
  'nex-agi': { name: 'Nex AGI' },
  nextbit: { name: 'NextBit' },
  novita: { name: 'NovitaAI', keyVariable: 'NOVITA_API_KEY' },
  nvidia: { name: 'Nvidia', keyVariable: 'NVIDIA_API_KEY' },
  ollama: {
    name: 'Ollama',
    format: 'openai-chat',
    baseUrl: 'http://127.0.0.1:11434/v1',
    auth: 'none',
    quirks: ['max-tokens', 'system-role', 'no-strict-tools'],
  },
  'open-inference': { name: 'OpenInference' },
  openai: {
    name: 'OpenAI',
    keyVariable: 'OPENAI_API_KEY',
    format: 'openai-responses',
    baseUrl: 'https://api.openai.com/v1',
  },
  parasail: { name: 'Parasail' },
  perceptron: { name: 'Perceptron' },
  perplexity: {
    name: 'Perplexity',
    keyVariable: 'PERPLEXITY_API_KEY',
    format: 'openai-embeddings',
    baseUrl: 'https://api.perplexity.ai/v1',
    quirks: ['int8-vectors', 'no-user'],
  },
  phala: { name: 'Phala' },
  poolside: { name: 'Poolside' },
  primeintellect: { name: 'PrimeIntellect' },
  quiver: { name: 'Quiver' },
  recraft: { name: 'Recraft' },
  reka: { name: 'Reka' },
  relace: { name: 'Relace' },
  runway: { name: 'Runway' },
  'sail-research': { name: 'Sail Research' },
  sakana: { name: 'Sakana' },
  'sakana-ai': { name: 'Sakana AI' },
  sambanova: { name: 'SambaNova', keyVariable: 'SAMBANOVA_API_KEY' },
  seed: { name: 'Seed' },
  siliconflow: { name: 'SiliconFlow' },
  sourceful: { name: 'Sourceful' },
  stepfun: { name: 'StepFun' },
  streamlake: { name: 'StreamLake' },
  switchpoint: { name: 'Switchpoint' },
  tencent: { name: 'Tencent' },
  tenstorrent: { name: 'Tenstorrent' },
  thinkingmachines: { name: 'Thinking Machines' },
  together: {
    name: 'Together',
    keyVariable: 'TOGETHER_API_KEY',
    format: 'openai-chat',
    baseUrl: 'https://api.together.xyz/v1',
    quirks: ['max-tokens', 'system-role', 'no-strict-tools'],
  },
  typesafe: { name: 'Typesafe' },
  unbiased: { name: 'Unbiased' },
  upstage: { name: 'Upstage' },
  venice: { name: 'Venice' },
  vllm: {
    name: 'vLLM',
    format: 'openai-chat',
    baseUrl: 'http://127.0.0.1:8000/v1',
    auth: 'none',
    quirks: ['max-tokens', 'system-role'],
  },
  voyageai: {
    name: 'VoyageAI',
    keyVariable: 'VOYAGE_API_KEY',
    format: 'openai-embeddings',
    baseUrl: 'https://api.voyageai.com/v1',
    quirks: ['output-dimension', 'input-type', 'cuts-texts', 'no-user'],
  },
  wafer: { name: 'Wafer' },
  wandb: { name: 'WandB' },
  'wandb-legacy': { name: 'WandB (legacy)' },
  xai: {
    name: 'xAI',
    keyVariable: 'XAI_API_KEY',
    format: 'openai-responses',
    baseUrl: 'https://api.x.ai/v1',
  },
  xiaomi: { name: 'Xiaomi' },
  'z-ai': { name: 'Z.AI' },
}

const NAMES: ReadonlyMap<string, string> = new Map(
  Object.entries(ROWS).map(([slug, { name }]) => [slug, name]),
)

/** The providers that need only a key. */
export const PROVIDERS: readonly Provider[] = Object.entries(ROWS).flatMap(([slug, row]) =>
  'format' in row ? [providerOf(slug, row)] : [],
)

/** The environment variables of the services' own keys, by slug. */
export const KEY_VARIABLES: ReadonlyMap<string, string> = new Map(
  Object.entries(ROWS).flatMap(([slug, { keyVariable }]) =>
    keyVariable === undefined ? [] : [[slug, keyVariable] as const],
  ),
)

/** The slugs of all rows: the providers that need only a key, and those that need a format and a base URL too. */
export const KNOWN_SLUGS: readonly string[] = Object.keys(ROWS)

/** The display name of a slug in the table; undefined for others. */
export function displayName(slug: string): string | undefined {
  return NAMES.get(slug)
}

function providerOf(slug: string, { keyVariable: _variable, ...row }: ServingRow): Provider {
  return {
    slug,
    auth: AUTH_OF_FORMAT[row.format],
    apiKey: null,
    quirks: [],
    headers: {},
    onAbort: 'cancel',
    ...row,
  }
}
