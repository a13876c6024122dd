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

const NAME = 'experimental__search_models'
const RESULTS_DEFAULT = 5
const RESULTS_MAX = 20
const QUERY_MAX_CHARS = 200

export function createSearchModels({ catalog }: { readonly catalog: Catalog }): ServerTool {
  return {
    name: NAME,
    open: entries => ({
      declare: () => entries.map(({ tool }) => declaration(tool)),
      firstForm: call => itemOf(call),
      run(call): ToolOutcome {
        const found = catalog.models().filter(filterOf(call.arguments))
        const models = found.slice(0, resultsOf(call.tool)).map(toldModel)
        return {
          item: itemOf(call),
          result: JSON.stringify({ models, total_results: found.length, showing: models.length }),
        }
      },
    }),
  }
}

function declaration(tool: RequestedTool): FunctionDeclaration {
  const modalities = { type: 'array', items: { type: 'string' } }
  return {
    tool,
    name: NAME,
    description: 'Finds AI models by name and abilities. Returns ids that requests can name as model.',
    parameters: objectSchema([], {
      query: {
        type: 'string',
        description: 'Part of the id, the name or the description; empty finds all',
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

/** The fields of the item. The model wrote both: `arguments`, and `query`, which is a part of them. */
function itemOf({ arguments: args }: ToolCall): Readonly<Record<string, unknown>> {
  const query = textOf(args['query'])
  return { ...(query === '' ? {} : { query }), arguments: JSON.stringify(args) }
}

function filterOf(args: ToolCall['arguments']): (model: Model) => boolean {
  const query = textOf(args['query']).toLowerCase()
  const series = textOf(args['series']).toLowerCase()
  const inputs = texts(args['input_modalities']).slice(0, RESULTS_MAX)
  const outputs = texts(args['output_modalities']).slice(0, RESULTS_MAX)
  const context = Number(args['min_context_length'] ?? 0)
  return model =>
    (query === '' || has(model.id, query) || has(model.name, query)) &&
    (series === '' || has(seriesOf(model), series) || has(model.name, series)) &&
    inputs.every(each => model.inputModalities.includes(each)) &&
    outputs.every(each => model.outputModalities.includes(each)) &&
    !(context > 0 && (model.contextLength ?? 0) < context)
}

function toldModel(model: Model) {
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

function has(text: string, part: string): boolean {
  return text.toLowerCase().includes(part)
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value.trim().slice(0, QUERY_MAX_CHARS) : ''
}

function resultsOf({ parameters }: RequestedTool): number {
  const requested = parameters?.['max_results']
  return typeof requested === 'number' ? Math.min(requested, RESULTS_MAX) : RESULTS_DEFAULT
}
