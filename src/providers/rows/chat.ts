/**
 * Providers whose own API is OpenAI's chat completions and whose row fits on one line. All others are in own.ts. Data.
 */
import { COMPATIBLE, chat, DOES_NOT_TRAIN, KEEPS_A_MONTH, KEEPS_NOTHING, type ServingRow } from './row.ts'

export const CHAT_ROWS = {
  ai21: chat('AI21', 'https://api.ai21.com/studio/v1', 'AI21_API_KEY', { authors: ['ai21'] }),
  'aion-labs': chat('AionLabs', 'https://api.aionlabs.ai/v1', 'AIONLABS_API_KEY', { authors: ['aion-labs'] }),
  akashml: chat('AkashML', 'https://api.akashml.com/v1', 'AKASHML_API_KEY'),
  alibaba: chat('Alibaba', 'https://dashscope-intl.aliyuncs.com/compatible-mode/v1', 'DASHSCOPE_API_KEY', {
    authors: ['qwen', 'alibaba'],
  }),
  'amazon-nova': chat('Amazon Nova', 'https://api.nova.amazon.com/v1', 'NOVA_API_KEY'),
  ambient: chat('Ambient', 'https://api.ambient.xyz/v1', 'AMBIENT_API_KEY'),
  'arcee-ai': chat('Arcee AI', 'https://api.arcee.ai/api/v1', 'ARCEEAI_API_KEY', { authors: ['arcee-ai'] }),
  assemblyai: chat('AssemblyAI', 'https://llm-gateway.assemblyai.com/v1', 'ASSEMBLYAI_API_KEY', {
    auth: 'authorization',
  }),
  'atlas-cloud': chat('AtlasCloud', 'https://api.atlascloud.ai/v1', 'ATLASCLOUD_API_KEY'),
  avian: chat('Avian', 'https://api.avian.io/v1', 'AVIAN_API_KEY'),
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
  coreweave: chat('CoreWeave', 'https://api.inference.coreweave.com/v1', 'COREWEAVE_API_KEY'),
  crusoe: chat('Crusoe', 'https://api.inference.crusoecloud.com/v1', 'CRUSOE_API_KEY'),
  darkbloom: chat('Darkbloom', 'https://api.darkbloom.dev/v1', 'DARKBLOOM_API_KEY'),
  deepinfra: chat('DeepInfra', 'https://api.deepinfra.com/v1/openai', 'DEEPINFRA_API_KEY', {
    policy: KEEPS_NOTHING,
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
  groq: chat('Groq', 'https://api.groq.com/openai/v1', 'GROQ_API_KEY', {
    quirks: ['system-role', 'no-strict-tools'],
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
  modal: chat('Modal', 'https://api.us-west-2.modal.direct/v1', 'MODAL_LLM_API_KEY'),
  modular: chat('Modular', 'https://api.modular.com/v1', 'MODULAR_API_KEY'),
  moonshotai: chat('Moonshot AI', 'https://api.moonshot.ai/v1', 'MOONSHOT_API_KEY', {
    // Its thinking models refuse tool calls without the preceding thought.
    quirks: [...COMPATIBLE, 'replay-reasoning', 'blank-reasoning'],
    authors: ['moonshotai'],
  }),
  morph: chat('Morph', 'https://api.morphllm.com/v1', 'MORPH_API_KEY', { authors: ['morph'] }),
  'near-ai': chat('NEAR AI', 'https://cloud-api.near.ai/v1', 'NEARAI_API_KEY'),
  nebius: chat('Nebius', 'https://api.tokenfactory.nebius.com/v1', 'NEBIUS_API_KEY'),
  nextbit: chat('NextBit', 'https://api.nextbit256.com/v1', 'NEXTBIT_API_KEY'),
  novita: chat('NovitaAI', 'https://api.novita.ai/openai/v1', 'NOVITA_API_KEY'),
  nvidia: chat('Nvidia', 'https://integrate.api.nvidia.com/v1', 'NVIDIA_API_KEY', { authors: ['nvidia'] }),
  parasail: chat('Parasail', 'https://api.parasail.io/v1', 'PARASAIL_API_KEY', { policy: DOES_NOT_TRAIN }),
  perceptron: chat('Perceptron', 'https://api.perceptron.inc/v1', 'PERCEPTRON_API_KEY', {
    authors: ['perceptron'],
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
  wafer: chat('Wafer', 'https://pass.wafer.ai/v1', 'WAFER_API_KEY'),
  wandb: chat('WandB', 'https://api.inference.wandb.ai/v1', 'WANDB_API_KEY'),
  xiaomi: chat('Xiaomi', 'https://api.xiaomimimo.com/v1', 'XIAOMI_API_KEY', { authors: ['xiaomi'] }),
  'z-ai': chat('Z.AI', 'https://api.z.ai/api/paas/v4', 'ZHIPU_API_KEY', { authors: ['z-ai'] }),
} as const satisfies Readonly<Record<string, ServingRow>>
