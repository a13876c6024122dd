/** The experimental__search_models server tool: searches the catalogue for models. */
import { texts } from '../../base/json.ts'
import type {
  FunctionDeclaration,
  RequestedTool,
  ServerTool,
  ToolCall,
  ToolOutcome,
} from '../../exchange/server-tool.ts'
import { objectSchema } from '../../protocol/json/object-schema.ts'
import type { Model } from '../../protocol/provider.ts'
import type { Catalog } from '../../providers/catalog.ts'

const TOOL_NAME = 'experimental__search_models'
const DEFAULT_RESULTS = 5
const MAX_RESULTS = 20
const MAX_QUERY_CHARS = 200

export function createSearchModels({ catalog }: { readonly catalog: Catalog }): ServerTool {
  return {
    name: TOOL_NAME,
    open: entries => ({
      declare: () => entries.map(({ tool }) => declaration(tool)),
      firstForm: call => itemOf(call),
      run(call): ToolOutcome {
        const matchingModels = catalog.models().filter(filterOf(call.arguments))
        const models = matchingModels.slice(0, maxResultsOf(call.tool)).map(modelEntry)
        return {
          item: itemOf(call),
          result: JSON.stringify({ models, total_results: matchingModels.length, showing: models.length }),
        }
      },
    }),
  }
}

function declaration(tool: RequestedTool): FunctionDeclaration {
  const modalities = { type: 'array', items: { type: 'string' } }
  return {
    tool,
    name: TOOL_NAME,
    description: 'Finds AI models by name and abilities. Returns ids that requests can name as model.',
    parameters: objectSchema([], {
      query: {
        type: 'string',
        description: 'Part of the id or the name; empty finds all',
      },
      input_modalities: {
        ...modalities,
        description: 'The model reads all of these: text, image, file, audio, video',
      },
      output_modalities: {
        ...modalities,
        description: 'The model makes all of these: text, image, audio, embeddings',
      },
      min_context_length: { type: 'integer', description: 'Smallest context in tokens' },
      series: { type: 'string', description: 'Author or family of the model, for example anthropic' },
    }),
  }
}

/** The fields of the item: the arguments as JSON, and the query by itself. */
function itemOf({ arguments: args }: ToolCall): Readonly<Record<string, unknown>> {
  const query = textOf(args['query'])
  return { ...(query === '' ? {} : { query }), arguments: JSON.stringify(args) }
}

function filterOf(args: ToolCall['arguments']): (model: Model) => boolean {
  const query = textOf(args['query']).toLowerCase()
  const series = textOf(args['series']).toLowerCase()
  const inputs = texts(args['input_modalities']).slice(0, MAX_RESULTS)
  const outputs = texts(args['output_modalities']).slice(0, MAX_RESULTS)
  const minContext = Number(args['min_context_length'] ?? 0)
  return model =>
    (query === '' || contains(model.id, query) || contains(model.name, query)) &&
    (series === '' || contains(seriesOf(model), series) || contains(model.name, series)) &&
    inputs.every(modality => model.inputModalities.includes(modality)) &&
    outputs.every(modality => model.outputModalities.includes(modality)) &&
    !(minContext > 0 && (model.contextLength ?? 0) < minContext)
}

function modelEntry(model: Model) {
  return {
    id: model.id,
    name: model.name,
    // The catalogue has no descriptions.
    description: '',
    context_length: model.contextLength,
    input_modalities: model.inputModalities,
    output_modalities: model.outputModalities,
    series: seriesOf(model),
  }
}

/** The author, because the catalogue has no families. */
function seriesOf({ id }: Model): string {
  return id.slice(0, Math.max(0, id.indexOf('/')))
}

function contains(text: string, part: string): boolean {
  return text.toLowerCase().includes(part)
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value.trim().slice(0, MAX_QUERY_CHARS) : ''
}

function maxResultsOf({ parameters }: RequestedTool): number {
  const requestedCount = parameters?.['max_results']
  return typeof requestedCount === 'number' ? Math.min(requestedCount, MAX_RESULTS) : DEFAULT_RESULTS
}
