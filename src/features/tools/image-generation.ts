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

const NAME = 'image_generation'
const MODEL_DEFAULT = 'openai/gpt-5-image'
/** Deadline of the model call: images take minutes. */
const ASK_MS = 170_000
const RUN_MS = 180_000
const PROMPT_MAX_CHARS = 32_000
/** Fields of the native tool about the form of the image. */
const CONFIG_FIELDS = [
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
    name: NAME,
    native: [NAME],
    runMs: RUN_MS,
    asksModels: true,
    open: (entries, exchange) => openSession(deps, entries, exchange),
  }
}

function openSession(
  { catalog, askAs }: ImageGenerationDeps,
  entries: readonly ToolEntry[],
  exchange: Exchange,
): ToolSession {
  const chosen = new Map<RequestedTool, string>()
  for (const entry of entries) {
    // The provider may run it itself, with a model that is not in the catalogue.
    if (!isNative(entry.tool)) chosen.set(entry.tool, modelOf(catalog, entry))
  }
  let isNoted = false
  /** Notes once that the image comes in one piece, if a caller wants partial images. */
  const noteParts = (tool: RequestedTool): void => {
    if (isNoted || !(Number(tool['partial_images']) > 0)) return
    isNoted = true
    exchange.pipeline.push({
      type: 'server_tools',
      name: 'left-out',
      summary: 'partial_images was left out: the gateway generates only whole images',
      data: { tools: [NAME], fields: ['partial_images'] },
    })
  }
  return {
    declare: endpoint =>
      entries.map(entry => {
        if (isNative(entry.tool) && endpoint.hosts(NAME)) return { native: entry.tool as never }
        if (isNative(entry.tool) && entry.tool['model'] == null && modelByDefault(catalog) === null)
          return { tool: entry.tool, missing: NO_MODEL }
        noteParts(entry.tool)
        if (!chosen.has(entry.tool)) chosen.set(entry.tool, modelOf(catalog, entry))
        return {
          tool: entry.tool,
          name: NAME,
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
      const report = (stage: string): void => progress({ name: `${NAME}_call.${stage}`, fields: {} })
      return await makeImage(
        call,
        () =>
          askAs(exchange, requestOf(call.tool, chosen.get(call.tool) ?? MODEL_DEFAULT, prompt), {
            deadlineMs: ASK_MS,
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
    ? Object.fromEntries(CONFIG_FIELDS.flatMap(name => (tool[name] == null ? [] : [[name, tool[name]]])))
    : without(tool.parameters ?? {}, 'model')
  return {
    model,
    input: prompt,
    modalities: ['image', 'text'],
    ...(Object.keys(settings).length === 0 ? {} : { image_config: settings }),
  } as ResponsesRequest
}

function without(fields: Readonly<Record<string, unknown>>, name: string): Record<string, unknown> {
  const { [name]: _, ...rest } = fields
  return rest
}

const NO_MODEL = 'no model in the catalogue generates images'

/** Null: the catalogue has no such model. */
function modelByDefault(catalog: Catalog): string | null {
  const preferred = catalog.model(MODEL_DEFAULT)
  const model = preferred ?? catalog.models().find(each => each.outputModalities.includes('image'))
  return model?.id ?? null
}

/** The id of the model for an entry. @throws GatewayError if no model in the catalogue creates images */
function modelOf(catalog: Catalog, { tool, path }: ToolEntry): string {
  const requestedModel = isNative(tool) ? tool['model'] : tool.parameters?.['model']
  const field = isNative(tool) ? `${path}.model` : `${path}.parameters.model`
  if (typeof requestedModel !== 'string') {
    const id = modelByDefault(catalog)
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
  return typeof prompt === 'string' ? prompt.slice(0, PROMPT_MAX_CHARS) : ''
}

function isNative({ type }: RequestedTool): boolean {
  return type === NAME
}

function failedOutcome({ tool }: ToolCall, error: string): ToolOutcome {
  return {
    item: { status: isNative(tool) ? 'failed' : 'incomplete', error },
    result: JSON.stringify({ status: 'error', error }),
  }
}
