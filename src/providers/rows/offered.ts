/**
 * The built-in providers by slug, in alphabetical order. A row of few lines uses `chat`: OpenAI's chat completions with
 * a key. Deviations of a provider from its format are its quirks. Data.
 */
import {
  DEEPSEEK_MODELS,
  GPT_MODELS,
  GROK_MODELS,
  GROQ_MODELS,
  KIMI_MODELS,
  MISTRAL_MODELS,
} from './models.ts'
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

export const OFFERED_ROWS = {
  ai21: chat('AI21', 'https://api.ai21.com/studio/v1', 'AI21_API_KEY', { authors: ['ai21'] }),
  'aion-labs': chat('AionLabs', 'https://api.aionlabs.ai/v1', 'AIONLABS_API_KEY', { authors: ['aion-labs'] }),
  akashml: chat('AkashML', 'https://api.akashml.com/v1', 'AKASHML_API_KEY'),
  alibaba: chat('Alibaba', 'https://dashscope-intl.aliyuncs.com/compatible-mode/v1', 'DASHSCOPE_API_KEY', {
    quirks: [...COMPATIBLE, 'json-word'],
    authors: ['qwen', 'alibaba'],
  }),
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
  'amazon-nova': chat('Amazon Nova', 'https://api.nova.amazon.com/v1', 'NOVA_API_KEY'),
  ambient: chat('Ambient', 'https://api.ambient.xyz/v1', 'AMBIENT_API_KEY'),
  anthropic: { name: 'Anthropic', ...ANTHROPIC, authors: ['anthropic'] },
  'anthropic/2': { name: 'Anthropic 2', ...ANTHROPIC },
  'arcee-ai': chat('Arcee AI', 'https://api.arcee.ai/api/v1', 'ARCEEAI_API_KEY', { authors: ['arcee-ai'] }),
  assemblyai: chat('AssemblyAI', 'https://llm-gateway.assemblyai.com/v1', 'ASSEMBLYAI_API_KEY', {
    auth: 'authorization',
  }),
  'atlas-cloud': chat('AtlasCloud', 'https://api.atlascloud.ai/v1', 'ATLASCLOUD_API_KEY'),
  avian: chat('Avian', 'https://api.avian.io/v1', 'AVIAN_API_KEY'),
  azure: {
    name: 'Azure',
    keyVariable: 'AZURE_API_KEY',
    format: 'openai-chat',
    baseUrl: 'https://{host}/openai/v1',
    baseUrls: { 'anthropic-messages': 'https://{host}/anthropic/v1' },
    auth: 'api-key',
    keyForm: 'azure',
    quirks: ['openai-limits'],
    modelRules: GPT_MODELS,
    hosts: [
      '*.openai.azure.com',
      '*.services.ai.azure.com',
      '*.cognitiveservices.azure.com',
      '*.*.models.ai.azure.com',
      '*.*.inference.ai.azure.com',
    ],
    policy: KEEPS_A_MONTH,
  },
  baidu: chat('Baidu', 'https://qianfan.baidubce.com/v2', 'QIANFAN_API_KEY', { authors: ['baidu'] }),
  baseten: chat('BaseTen', 'https://inference.baseten.co/v1', 'BASETEN_API_KEY', { policy: KEEPS_NOTHING }),
  byteplus: chat('BytePlus', 'https://ark.ap-southeast.bytepluses.com/api/v3', 'ARK_API_KEY'),
  cerebras: chat('Cerebras', 'https://api.cerebras.ai/v1', 'CEREBRAS_API_KEY', {
    quirks: ['system-role'],
    policy: KEEPS_NOTHING,
  }),
  chutes: chat('Chutes', 'https://llm.chutes.ai/v1', 'CHUTES_API_KEY'),
  cirrascale: chat('Cirrascale', 'https://aisuite.cirrascale.com/apis/v2', 'CIRRASCALE_API_KEY'),
  clarifai: chat('Clarifai', 'https://api.clarifai.com/v2/ext/openai/v1', 'CLARIFAI_PAT'),
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
  coreweave: chat('CoreWeave', 'https://api.inference.coreweave.com/v1', 'COREWEAVE_API_KEY'),
  crusoe: chat('Crusoe', 'https://api.inference.crusoecloud.com/v1', 'CRUSOE_API_KEY'),
  darkbloom: chat('Darkbloom', 'https://api.darkbloom.dev/v1', 'DARKBLOOM_API_KEY'),
  databricks: chat('Databricks', 'https://{host}/serving-endpoints', 'DATABRICKS_TOKEN', {
    keyForm: 'host',
    hosts: ['*.cloud.databricks.com', '*.*.azuredatabricks.net', '*.*.gcp.databricks.com'],
    policy: DOES_NOT_TRAIN,
  }),
  deepinfra: chat('DeepInfra', 'https://api.deepinfra.com/v1/openai', 'DEEPINFRA_API_KEY', {
    policy: KEEPS_NOTHING,
  }),
  deepseek: chat('DeepSeek', 'https://api.deepseek.com/v1', 'DEEPSEEK_API_KEY', {
    quirks: [...COMPATIBLE, 'replay-reasoning', 'json-word', 'thinking-switch'],
    modelRules: DEEPSEEK_MODELS,
    // Its API reference: `text` or `json_object`.
    jsonFormats: ['json_object'],
    policy: TRAINS,
    authors: ['deepseek'],
  }),
  dekallm: chat('DekaLLM', 'https://dekallm.cloudeka.ai/v1', 'DEKALLM_API_KEY'),
  digitalocean: chat('DigitalOcean', 'https://inference.do-ai.run/v1', 'DIGITALOCEAN_ACCESS_TOKEN'),
  featherless: chat('Featherless', 'https://api.featherless.ai/v1', 'FEATHERLESS_API_KEY'),
  fireworks: chat('Fireworks', 'https://api.fireworks.ai/inference/v1', 'FIREWORKS_API_KEY', {
    keyForm: 'regional',
    policy: KEEPS_NOTHING,
  }),
  friendli: chat('Friendli', 'https://api.friendli.ai/serverless/v1', 'FRIENDLI_TOKEN'),
  gmicloud: chat('GMICloud', 'https://api.gmi-serving.com/v1', 'GMICLOUD_API_KEY'),
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
  groq: chat('Groq', 'https://api.groq.com/openai/v1', 'GROQ_API_KEY', {
    quirks: ['system-role', 'no-strict-tools', 'json-word'],
    modelRules: GROQ_MODELS,
    // It answers 400 to both in one request.
    jsonBesideTools: false,
    policy: KEEPS_A_MONTH,
  }),
  inception: chat('Inception', 'https://api.inceptionlabs.ai/v1', 'INCEPTION_API_KEY', {
    authors: ['inception'],
  }),
  inceptron: chat('Inceptron', 'https://api.inceptron.io/v1', 'INCEPTRON_API_KEY'),
  'inference-net': chat('InferenceNet', 'https://api.inference.net/v1', 'INFERENCE_API_KEY'),
  infermatic: chat('Infermatic', 'https://api.totalgpt.ai/v1', 'INFERMATIC_API_KEY'),
  inflection: chat(
    'Inflection',
    'https://api.inflection.ai/external/api/inference/openai/v1',
    'INFLECTION_API_KEY',
    { authors: ['inflection'] },
  ),
  'io-net': chat('Io Net', 'https://api.intelligence.io.solutions/api/v1', 'IOINTELLIGENCE_API_KEY'),
  liquid: chat('Liquid', 'https://api.liquid.ai/v1', 'LIQUID_API_KEY', { authors: ['liquid'] }),
  llamacpp: {
    name: 'llama.cpp',
    format: 'openai-chat',
    baseUrl: 'http://127.0.0.1:8080/v1',
    auth: 'none',
    quirks: ['max-tokens', 'system-role', 'strict-template'],
  },
  makora: chat('Makora', 'https://inference.makora.com/v1', 'MAKORA_API_KEY'),
  mancer: chat('Mancer', 'https://neuro.mancer.tech/oai/v1', 'MANCER_API_KEY', { authors: ['mancer'] }),
  mara: chat('Mara', 'https://api.cloud.mara.com/v1', 'MARA_API_KEY'),
  meta: chat('Meta', 'https://api.llama.com/compat/v1', 'LLAMA_API_KEY', {
    authors: ['meta-llama', 'meta'],
  }),
  minimax: chat('Minimax', 'https://api.minimax.io/v1', 'MINIMAX_API_KEY', {
    baseUrls: { 'anthropic-messages': 'https://api.minimax.io/anthropic/v1' },
    authors: ['minimax'],
  }),
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
    modelRules: MISTRAL_MODELS,
    // Its API reference: an assistant's last message with this field is what the answer begins with.
    continues: 'prefix',
    policy: KEEPS_A_MONTH,
    authors: ['mistralai', 'mistral'],
  }),
  modal: chat('Modal', 'https://api.us-west-2.modal.direct/v1', 'MODAL_LLM_API_KEY'),
  modular: chat('Modular', 'https://api.modular.com/v1', 'MODULAR_API_KEY'),
  moonshotai: chat('Moonshot AI', 'https://api.moonshot.ai/v1', 'MOONSHOT_API_KEY', {
    // Its thinking models refuse tool calls without the preceding thought.
    quirks: [...COMPATIBLE, 'replay-reasoning', 'blank-reasoning'],
    modelRules: KIMI_MODELS,
    authors: ['moonshotai'],
  }),
  morph: chat('Morph', 'https://api.morphllm.com/v1', 'MORPH_API_KEY', { authors: ['morph'] }),
  'near-ai': chat('NEAR AI', 'https://cloud-api.near.ai/v1', 'NEARAI_API_KEY'),
  nebius: chat('Nebius', 'https://api.tokenfactory.nebius.com/v1', 'NEBIUS_API_KEY'),
  nextbit: chat('NextBit', 'https://api.nextbit256.com/v1', 'NEXTBIT_API_KEY'),
  novita: chat('NovitaAI', 'https://api.novita.ai/openai/v1', 'NOVITA_API_KEY'),
  nvidia: chat('Nvidia', 'https://integrate.api.nvidia.com/v1', 'NVIDIA_API_KEY', { authors: ['nvidia'] }),
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
    modelRules: GPT_MODELS,
  },
  parasail: chat('Parasail', 'https://api.parasail.io/v1', 'PARASAIL_API_KEY', { policy: DOES_NOT_TRAIN }),
  perceptron: chat('Perceptron', 'https://api.perceptron.inc/v1', 'PERCEPTRON_API_KEY', {
    authors: ['perceptron'],
  }),
  perplexity: chat('Perplexity', 'https://api.perplexity.ai', 'PERPLEXITY_API_KEY', {
    baseUrls: { 'openai-embeddings': 'https://api.perplexity.ai/v1' },
    quirks: [...COMPATIBLE, 'int8-vectors', 'no-user'],
    policy: KEEPS_NOTHING,
    authors: ['perplexity'],
  }),
  phala: chat('Phala', 'https://api.redpill.ai/v1', 'REDPILL_API_KEY'),
  poolside: chat('Poolside', 'https://inference.poolside.ai/v1', 'POOLSIDE_API_KEY', {
    authors: ['poolside'],
  }),
  primeintellect: chat('PrimeIntellect', 'https://api.pinference.ai/api/v1', 'PRIME_API_KEY', {
    authors: ['prime-intellect'],
  }),
  reka: chat('Reka', 'https://api.reka.ai/v1', 'REKA_API_KEY', { auth: 'x-api-key', authors: ['rekaai'] }),
  relace: chat('Relace', 'https://instantapply.endpoint.relace.run/v1/apply', 'RELACE_API_KEY', {
    authors: ['relace'],
  }),
  'sail-research': {
    name: 'Sail Research',
    keyVariable: 'SAIL_API_KEY',
    format: 'openai-responses',
    baseUrl: 'https://api.sailresearch.com/v1',
  },
  sakana: chat('Sakana', 'https://api.sakana.ai/v1', 'SAKANA_API_KEY'),
  'sakana-ai': chat('Sakana AI', 'https://api.sakana.ai/v1', 'SAKANA_API_KEY', { authors: ['sakana-ai'] }),
  sambanova: chat('SambaNova', 'https://api.sambanova.ai/v1', 'SAMBANOVA_API_KEY'),
  // ByteDance's own models have the address of BytePlus.
  seed: chat('Seed', 'https://ark.ap-southeast.bytepluses.com/api/v3', 'ARK_API_KEY', {
    authors: ['bytedance-seed', 'seed'],
  }),
  siliconflow: chat('SiliconFlow', 'https://api.siliconflow.com/v1', 'SILICONFLOW_API_KEY'),
  stepfun: chat('StepFun', 'https://api.stepfun.ai/v1', 'STEPFUN_API_KEY', { authors: ['stepfun'] }),
  streamlake: chat(
    'StreamLake',
    'https://vanchin.streamlake.ai/api/gateway/v1/endpoints',
    'STREAMLAKE_API_KEY',
    {
      authors: ['kwaipilot'],
    },
  ),
  switchpoint: chat('Switchpoint', 'https://www.switchpoint.dev/v1', 'SWITCHPOINT_API_KEY', {
    authors: ['switchpoint'],
  }),
  tencent: chat('Tencent', 'https://tokenhub.tencentmaas.com/v1', 'TENCENT_TOKENHUB_API_KEY', {
    authors: ['tencent'],
  }),
  tenstorrent: chat('Tenstorrent', 'https://console.tenstorrent.com/v1', 'TENSTORRENT_API_KEY'),
  thinkingmachines: chat(
    'Thinking Machines',
    'https://tinker.thinkingmachines.dev/services/tinker-prod/oai/api/v1',
    'TINKER_API_KEY',
    { authors: ['thinkingmachines'] },
  ),
  together: chat('Together', 'https://api.together.xyz/v1', 'TOGETHER_API_KEY', { policy: DOES_NOT_TRAIN }),
  upstage: chat('Upstage', 'https://api.upstage.ai/v1', 'UPSTAGE_API_KEY', { authors: ['upstage'] }),
  venice: chat('Venice', 'https://api.venice.ai/api/v1', 'VENICE_API_KEY', { policy: KEEPS_NOTHING }),
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
  wafer: chat('Wafer', 'https://pass.wafer.ai/v1', 'WAFER_API_KEY'),
  wandb: chat('WandB', 'https://api.inference.wandb.ai/v1', 'WANDB_API_KEY'),
  xai: {
    name: 'xAI',
    keyVariable: 'XAI_API_KEY',
    format: 'openai-responses',
    baseUrl: 'https://api.x.ai/v1',
    policy: KEEPS_A_MONTH,
    // It refuses the type as an unknown variant.
    customTools: false,
    modelRules: GROK_MODELS,
    authors: ['x-ai', 'xai'],
  },
  xiaomi: chat('Xiaomi', 'https://api.xiaomimimo.com/v1', 'XIAOMI_API_KEY', { authors: ['xiaomi'] }),
  'z-ai': chat('Z.AI', 'https://api.z.ai/api/paas/v4', 'ZHIPU_API_KEY', { authors: ['z-ai'] }),
} as const satisfies Readonly<Record<string, ServingRow>>
