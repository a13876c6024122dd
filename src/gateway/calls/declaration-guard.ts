/** Guardrails on tool declarations from outside, such as those of MCP servers. Serve threads. */

import type { Exchange } from '../../exchange/exchange.ts'
import type { FunctionDeclaration, ToolDeclaration } from '../../tools/tool.ts'
import type { Guarding } from '../guard/guard.ts'

type GuardedExchange = Exchange & { readonly guarding: Guarding | null }

/** The guard of one exchange: each text is judged once. It rejects with the error of a guardrail that blocks. */
export function createDeclarationGuard() {
  const passed = new Map<string, string>()
  return (declarations: readonly ToolDeclaration[], exchange: GuardedExchange) =>
    guarded(passed, declarations, exchange)
}

/** The declarations after the guardrails of the caller. */
async function guarded(
  passedOf: Map<string, string>,
  declarations: readonly ToolDeclaration[],
  exchange: GuardedExchange,
): Promise<readonly ToolDeclaration[]> {
  const guard = exchange.guarding?.input ?? null
  const foreign = declarations.flatMap(one => ('isForeign' in one && one.isForeign === true ? [one] : []))
  if (guard === null || foreign.length === 0) return declarations
  const told = JSON.stringify(foreign.map(({ description, parameters }) => ({ description, parameters })))
  const passed = passedOf.get(told) ?? (await guard.text(exchange, told))
  passedOf.set(told, passed)
  if (passed === told) return declarations
  const rewritten = rewrittenOf(passed)
  return declarations.flatMap(one => {
    const at = foreign.indexOf(one as FunctionDeclaration)
    if (at === -1) return [one]
    const told = rewritten[at]
    return told === undefined ? [] : [{ ...(one as FunctionDeclaration), ...told }]
  })
}

/** Descriptions and schemas as a guardrail has rewritten them; none where that left no JSON. */
function rewrittenOf(text: string): readonly Pick<FunctionDeclaration, 'description' | 'parameters'>[] {
  try {
    return JSON.parse(text) as ReturnType<typeof rewrittenOf>
  } catch {
    return []
  }
}
