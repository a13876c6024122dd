/**
 * Providers that have their own API, several addresses, quirks or structured keys, including those that use OpenAI's
 * chat-completions format. Data.
 */
import {
  COMPATIBLE,
  chat,
  DOES_NOT_TRAIN,
  KEEPS_A_MONTH,
  KEEPS_NOTHING,
  type ServingRow,
  TRAINS,
} from './row.ts'

const ANTHROPIC = {
  keyVariable: 'ANTHROPIC_API_KEY',
  format: 'anthropic-messages',
  baseUrl: 'https://api.anthropic.com/v1',
  policy: KEEPS_A_MONTH,
  messagesMax: 1_000,
} as const satisfies Partial<ServingRow>

const BEDROCK = {
  keyVariable: 'AWS_BEARER_TOKEN_BEDROCK',
  auth: 'aws-sigv4',
  keyForm: 'aws',
  // API keys do not contain a region.
  region: 'us-east-1',
  // A key may belong to another region of AWS.
  hosts: ['bedrock-runtime.*.amazonaws.com'],
  awsService: 'bedrock',
  policy: KEEPS_NOTHING,
} as const satisfies Partial<ServingRow>

export const OWN_ROWS = {
  'amazon-bedrock': {
    name: 'Amazon Bedrock',
    ...BEDROCK,
    format: 'bedrock-converse',
    baseUrl: 'https://bedrock-runtime.{region}.amazonaws.com',
    authors: ['amazon'],
  },
  'amazon-bedrock/claude-on-aws': {
    name: 'Amazon Bedrock (Claude on AWS)',
    ...BEDROCK,
    format: 'anthropic-messages',
    baseUrl: 'https://bedrock-runtime.{region}.amazonaws.com/anthropic/v1',
  },
  anthropic: { name: 'Anthropic', ...ANTHROPIC, authors: ['anthropic'] },
  'anthropic/2': { name: 'Anthropic 2', ...ANTHROPIC },
  azure: {
    name: 'Azure',
    keyVariable: 'AZURE_API_KEY',
    format: 'openai-chat',
    baseUrl: 'https://{host}/openai/v1',
    baseUrls: { 'anthropic-messages': 'https://{host}/anthropic/v1' },
    auth: 'api-key',
    keyForm: 'azure',
    quirks: ['openai-limits'],
    hosts: [
      '*.openai.azure.com',
      '*.services.ai.azure.com',
      '*.cognitiveservices.azure.com',
      '*.*.models.ai.azure.com',
      '*.*.inference.ai.azure.com',
    ],
    policy: KEEPS_A_MONTH,
  },
  'claude-on-aws': {
    name: 'Claude on AWS',
    format: 'anthropic-messages',
    baseUrl: 'https://aws-external-anthropic.{region}.api.aws/v1',
    auth: 'aws-sigv4',
    keyForm: 'claude-on-aws',
    hosts: ['aws-external-anthropic.*.api.aws'],
    awsService: 'aws-external-anthropic',
    policy: KEEPS_A_MONTH,
  },
  cloudflare: chat(
    'Cloudflare',
    'https://api.cloudflare.com/client/v4/accounts/{account}/ai/v1',
    'CLOUDFLARE_API_TOKEN',
    { keyForm: 'account', policy: DOES_NOT_TRAIN },
  ),
  cohere: chat('Cohere', 'https://api.cohere.ai/compatibility/v1', 'COHERE_API_KEY', {
    baseUrls: { 'cohere-embeddings': 'https://api.cohere.com/v2' },
    embeddings: 'cohere-embeddings',
    authors: ['cohere'],
  }),
  databricks: chat('Databricks', 'https://{host}/serving-endpoints', 'DATABRICKS_TOKEN', {
    keyForm: 'host',
    hosts: ['*.cloud.databricks.com', '*.*.azuredatabricks.net', '*.*.gcp.databricks.com'],
    policy: DOES_NOT_TRAIN,
  }),
  deepseek: chat('DeepSeek', 'https://api.deepseek.com/v1', 'DEEPSEEK_API_KEY', {
    quirks: [...COMPATIBLE, 'replay-reasoning'],
    policy: TRAINS,
    authors: ['deepseek'],
  }),
  'google-ai-studio': {
    name: 'Google AI Studio',
    keyVariable: 'GEMINI_API_KEY',
    format: 'google-gemini',
    baseUrl: 'https://generativelanguage.googleapis.com/v1beta',
    // Without a paid plan it may train on data.
    policy: { trains: null, retentionDays: 55 },
    authors: ['google'],
  },
  'google-vertex': {
    name: 'Google',
    format: 'google-gemini',
    baseUrl: 'https://{host}/v1/projects/{project}/locations/{location}/publishers/google',
    baseUrls: {
      'anthropic-messages': 'https://{host}/v1/projects/{project}/locations/{location}/publishers/anthropic',
    },
    auth: 'google-service-account',
    keyForm: 'vertex',
    embeddings: 'vertex-embeddings',
    quirks: ['counts-contents', 'raw-predict'],
    hosts: ['aiplatform.googleapis.com', '*-aiplatform.googleapis.com', 'aiplatform.*.rep.googleapis.com'],
    tokenUrl: 'https://oauth2.googleapis.com/token',
    policy: DOES_NOT_TRAIN,
    authors: ['google'],
  },
  llamacpp: {
    name: 'llama.cpp',
    format: 'openai-chat',
    baseUrl: 'http://127.0.0.1:8080/v1',
    auth: 'none',
    quirks: ['max-tokens', 'system-role', 'strict-template'],
  },
  mistral: chat('Mistral', 'https://api.mistral.ai/v1', 'MISTRAL_API_KEY', {
    // It sends usage in the last chunk by default and refuses the option as an unknown field.
    quirks: [
      'max-tokens',
      'no-stream-usage',
      'system-role',
      'any-tool-choice',
      'thinking-parts',
      'nine-letter-call-ids',
      'no-user',
      'output-dimension',
      'float-vectors',
    ],
    policy: KEEPS_A_MONTH,
    authors: ['mistralai', 'mistral'],
  }),
  ollama: {
    name: 'Ollama',
    format: 'openai-chat',
    baseUrl: 'http://127.0.0.1:11434/v1',
    auth: 'none',
    quirks: [...COMPATIBLE, 'strict-template'],
  },
  openai: {
    name: 'OpenAI',
    keyVariable: 'OPENAI_API_KEY',
    format: 'openai-responses',
    baseUrl: 'https://api.openai.com/v1',
    regionUrls: { europe: 'https://eu.api.openai.com/v1', us: 'https://us.api.openai.com/v1' },
    keyForm: 'regional',
    policy: KEEPS_A_MONTH,
    authors: ['openai'],
    // Also in chat completions.
    customTools: true,
    quirks: ['openai-limits'],
  },
  perplexity: chat('Perplexity', 'https://api.perplexity.ai', 'PERPLEXITY_API_KEY', {
    baseUrls: { 'openai-embeddings': 'https://api.perplexity.ai/v1' },
    quirks: [...COMPATIBLE, 'int8-vectors', 'no-user'],
    policy: KEEPS_NOTHING,
    authors: ['perplexity'],
  }),
  'sail-research': {
    name: 'Sail Research',
    keyVariable: 'SAIL_API_KEY',
    format: 'openai-responses',
    baseUrl: 'https://api.sailresearch.com/v1',
  },
  vllm: {
    name: 'vLLM',
    format: 'openai-chat',
    baseUrl: 'http://127.0.0.1:8000/v1',
    auth: 'none',
    quirks: ['max-tokens', 'system-role', 'strict-template'],
  },
  voyageai: {
    name: 'VoyageAI',
    keyVariable: 'VOYAGE_API_KEY',
    format: 'openai-embeddings',
    baseUrl: 'https://api.voyageai.com/v1',
    quirks: ['output-dimension', 'input-type', 'cuts-texts', 'no-user'],
    authors: ['voyage'],
  },
  xai: {
    name: 'xAI',
    keyVariable: 'XAI_API_KEY',
    format: 'openai-responses',
    baseUrl: 'https://api.x.ai/v1',
    policy: KEEPS_A_MONTH,
    // It refuses the type as an unknown variant.
    customTools: false,
    authors: ['x-ai', 'xai'],
  },
} as const satisfies Readonly<Record<string, ServingRow>>
