/** Explores a gateway: which of the two interfaces it offers, and which model to use. */
import { DIALECTS, type Dialect } from './dialects.ts'
import { isNoAnswer } from './faults.ts'
import { PROVIDER_MODEL } from './provider.ts'
import { fields, list, objectOf, string } from './sse.ts'
import { type ProbeAnswer, Samples, Tester, type TesterDeps } from './tester.ts'

/** The gateway cannot be tested: it is unreachable, refuses the key, or has no model that answers. */
export class ProveFault extends Error {
  override readonly name = 'ProveFault'
}

export interface SurveyResult {
  readonly deps: TesterDeps
  readonly samples: Samples
  readonly dialects: readonly Dialect[]
  /** The reason why an interface is not tested. */
  readonly absent: readonly { readonly dialect: Dialect; readonly why: string }[]
}

/** For checks that send their own requests: only finds the model. @throws ProveFault, RationSpent */
export async function surveyModel(testerDeps: TesterDeps): Promise<SurveyResult> {
  const model = testerDeps.target.model || (await firstModel(testerDeps))
  return {
    deps: { ...testerDeps, target: { ...testerDeps.target, model } },
    samples: new Samples(),
    dialects: [],
    absent: [],
  }
}

/** @param deps with the requested model, or an empty one @throws ProveFault, RationSpent */
export async function survey(testerDeps: TesterDeps): Promise<SurveyResult> {
  const model = testerDeps.target.model || (await firstModel(testerDeps))
  let deps: TesterDeps = { ...testerDeps, target: { ...testerDeps.target, model } }
  const samples = new Samples()
  const dialects: Dialect[] = []
  const absent: { dialect: Dialect; why: string }[] = []
  for (const dialect of DIALECTS) {
    let answer = await sendProbe(new Tester(deps, new Samples()), dialect)
    const wantsNewField =
      dialect.name === 'chat' && answer.reply.status === 400 && /max_tokens/.test(answer.reply.text)
    if (wantsNewField) {
      deps = { ...deps, target: { ...deps.target, maxTokensField: 'max_completion_tokens' } }
      answer = await sendProbe(new Tester(deps, new Samples()), dialect)
    }
    const { status } = answer.reply
    const firstAnswer = answer
    if (status === 401 || status === 403)
      throw new ProveFault(`the gateway refused the key: ${statusText(answer)}`)
    if (status === 200) {
      dialects.push(dialect)
      await samples.of(`${dialect.name} whole`, () => Promise.resolve(firstAnswer))
    } else absent.push({ dialect, why: statusText(answer) })
  }
  if (dialects.length > 0) return { deps, samples, dialects, absent }
  const why = absent.map(({ dialect: { path }, why: reason }) => `${path}: ${reason}`).join('; ')
  throw new ProveFault(
    `the model ${model} answers through neither interface (${why}): name another model with --model ID, or another address`,
  )
}

async function sendProbe(tester: Tester, dialect: Dialect): Promise<ProbeAnswer> {
  try {
    return await tester.ask(dialect)
  } catch (error) {
    if (isNoAnswer(error))
      throw new ProveFault(`no gateway answers at ${tester.deps.target.url}: ${error.message}`)
    throw error
  } finally {
    tester.end()
  }
}

/** The first model in the gateway's list that writes text, or else that of the scripted provider. @throws ProveFault */
async function firstModel(deps: TesterDeps): Promise<string> {
  const tester = new Tester(deps, new Samples())
  try {
    const reply = await tester.request('GET', '/models', null)
    const models = list(fields(objectOf(reply.text))['data']).map(fields)
    const textModel = models.find(model => {
      const outputs = fields(model['architecture'])['output_modalities']
      return string(model['id']) !== '' && (!Array.isArray(outputs) || outputs.includes('text'))
    })
    if (textModel !== undefined) return string(textModel['id'])
    if (deps.provider !== null) return PROVIDER_MODEL
    throw new ProveFault(`GET /models names no model (status ${reply.status}): name one with --model ID`)
  } catch (error) {
    if (isNoAnswer(error)) throw new ProveFault(`no gateway answers at ${deps.target.url}: ${error.message}`)
    throw error
  } finally {
    tester.end()
  }
}

function statusText({ reply, document }: ProbeAnswer): string {
  const { message } = fields(fields(document)['error'])
  return `status ${reply.status}${typeof message === 'string' ? `, ${message}` : ''}`
}
