/**
 * The image_generation server tool: generates an image with a model in the catalogue, on behalf of the caller. Also
 * serves the native tool of that name if the provider has none. Serve threads.
 */
import { GatewayError } from '../../base/errors.ts'
import type { AskAs, Exchange } from '../../exchange/exchange.ts'
import type {
  RequestedTool,
  ServerTool,
  ToolCall,
  ToolEntry,
  ToolOutcome,
  ToolSession,
} from '../../exchange/server-tool.ts'
import type { OutputItem } from '../../protocol/items.ts'
import { objectSchema } from '../../protocol/json/object-schema.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { Catalog } from '../../providers/catalog.ts'

interface ImageGenerationDeps {
  readonly catalog: Catalog
  readonly askAs: AskAs
}

const TOOL_NAME = 'image_generation'
const DEFAULT_MODEL = 'openai/gpt-5-image'
/** Deadline of the model call: images take minutes. */
const MODEL_TIMEOUT_MS = 170_000
const RUN_TIMEOUT_MS = 180_000
const MAX_PROMPT_CHARS = 32_000
/** Fields of the native tool about the form of the image. */
const IMAGE_FIELDS = [
  'background',
  'input_fidelity',
  'moderation',
  'output_compression',
  'output_format',
  'quality',
  'size',
] as const

export function createImageGeneration(deps: ImageGenerationDeps): ServerTool {
  return {
    name: TOOL_NAME,
    native: [TOOL_NAME],
    runMs: RUN_TIMEOUT_MS,
    asksModels: true,
    open: (entries, exchange) => openSession(deps, entries, exchange),
  }
}

function openSession(
  { catalog, askAs }: ImageGenerationDeps,
  entries: readonly ToolEntry[],
  exchange: Exchange,
): ToolSession {
  const modelByTool = new Map<RequestedTool, string>()
  for (const entry of entries) {
    // A provider may run a native tool itself, with a model that is not in the catalogue.
    if (!isNative(entry.tool)) modelByTool.set(entry.tool, modelOf(catalog, entry))
  }
  let hasNoted = false
  /** Notes once that a caller who wants partial images gets only whole ones. */
  const notePartialImages = (tool: RequestedTool): void => {
    if (hasNoted || !(Number(tool['partial_images']) > 0)) return
    hasNoted = true
    exchange.pipeline.push({
      type: 'server_tools',
      name: 'left-out',
      summary: 'partial_images was left out: the gateway generates only whole images',
      data: { tools: [TOOL_NAME], fields: ['partial_images'] },
    })
  }
  return {
    declare: endpoint =>
      entries.map(entry => {
        if (isNative(entry.tool) && endpoint.hosts(TOOL_NAME)) return { native: entry.tool as never }
        if (isNative(entry.tool) && entry.tool['model'] == null && defaultModel(catalog) === null)
          return { tool: entry.tool, missing: NO_MODEL }
        notePartialImages(entry.tool)
        if (!modelByTool.has(entry.tool)) modelByTool.set(entry.tool, modelOf(catalog, entry))
        return {
          tool: entry.tool,
          name: TOOL_NAME,
          description: 'Makes an image and shows it to the user. You do not see it.',
          parameters: objectSchema(['prompt'], {
            prompt: { type: 'string', description: 'What the image shows, in all detail' },
          }),
        }
      }),
    firstForm: call => ({
      ...(isNative(call.tool) ? { type: 'image_generation_call' } : {}),
      ...(promptOf(call) === '' ? {} : { prompt: promptOf(call) }),
    }),
    async run(call, progress, signal) {
      const prompt = promptOf(call)
      if (prompt === '') return failedOutcome(call, 'prompt: must say what the image shows')
      const report = (stage: string): void => progress({ name: `${TOOL_NAME}_call.${stage}`, fields: {} })
      return await makeImage(
        call,
        () =>
          askAs(exchange, requestOf(call.tool, modelByTool.get(call.tool) ?? DEFAULT_MODEL, prompt), {
            deadlineMs: MODEL_TIMEOUT_MS,
            signal,
          }),
        report,
        signal,
      )
    },
  }
}

async function makeImage(
  call: ToolCall,
  callModel: () => ReturnType<AskAs>,
  report: (stage: string) => void,
  signal: AbortSignal,
): Promise<ToolOutcome> {
  report('in_progress')
  report('generating')
  try {
    const { output } = await callModel()
    const image = imageIn(output)
    if (image === null) return failedOutcome(call, 'The model generated no image')
    report('completed')
    return {
      item: { ...image, status: 'completed' },
      result: JSON.stringify({ status: 'ok', imageUrl: 'The user sees the image beside this answer' }),
    }
  } catch (thrown) {
    signal.throwIfAborted()
    if (thrown instanceof GatewayError) return failedOutcome(call, thrown.message)
    throw thrown
  }
}

/** The first image of a reply, without its id. */
function imageIn(output: readonly OutputItem[]): Readonly<Record<string, unknown>> | null {
  for (const item of output) {
    if (item.type !== 'image_generation_call') continue
    const { result, output_format, revised_prompt } = item as Readonly<Record<string, unknown>>
    if (typeof result !== 'string' || result === '') continue
    return {
      result,
      ...(typeof output_format === 'string' ? { output_format } : {}),
      ...(typeof revised_prompt === 'string' ? { revisedPrompt: revised_prompt } : {}),
    }
  }
  return null
}

function requestOf(tool: RequestedTool, model: string, prompt: string): ResponsesRequest {
  const settings = isNative(tool)
    ? Object.fromEntries(IMAGE_FIELDS.flatMap(name => (tool[name] == null ? [] : [[name, tool[name]]])))
    : without(tool.parameters ?? {}, 'model')
  return {
    model,
    input: prompt,
    modalities: ['image', 'text'],
    ...(Object.keys(settings).length === 0 ? {} : { image_config: settings }),
  } as ResponsesRequest
}

function without(fields: Readonly<Record<string, unknown>>, name: string): Record<string, unknown> {
  const { [name]: _, ...kept } = fields
  return kept
}

const NO_MODEL = 'no model in the catalogue generates images'

/** The id of the model for entries that name none; null if no model in the catalogue generates images. */
function defaultModel(catalog: Catalog): string | null {
  const preferred = catalog.model(DEFAULT_MODEL)
  const model = preferred ?? catalog.models().find(candidate => candidate.outputModalities.includes('image'))
  return model?.id ?? null
}

/** The id of the model for an entry. @throws GatewayError if the catalogue has no such model */
function modelOf(catalog: Catalog, { tool, path }: ToolEntry): string {
  const requestedModel = isNative(tool) ? tool['model'] : tool.parameters?.['model']
  const field = isNative(tool) ? `${path}.model` : `${path}.parameters.model`
  if (typeof requestedModel !== 'string') {
    const id = defaultModel(catalog)
    if (id === null) throw new GatewayError('invalid_request', `${field}: ${NO_MODEL}`)
    return id
  }
  // Providers name their models without an author.
  const model =
    catalog.model(requestedModel) ?? (isNative(tool) ? catalog.model(`openai/${requestedModel}`) : undefined)
  if (model === undefined) throw new GatewayError('invalid_request', `${field}: is not in the catalogue`)
  if (!model.outputModalities.includes('image'))
    throw new GatewayError('invalid_request', `${field}: this model does not generate images`)
  return model.id
}

function promptOf({ arguments: { prompt } }: ToolCall): string {
  return typeof prompt === 'string' ? prompt.slice(0, MAX_PROMPT_CHARS) : ''
}

function isNative({ type }: RequestedTool): boolean {
  return type === TOOL_NAME
}

function failedOutcome({ tool }: ToolCall, error: string): ToolOutcome {
  return {
    item: { status: isNative(tool) ? 'failed' : 'incomplete', error },
    result: JSON.stringify({ status: 'error', error }),
  }
}
