/** Calls and their outputs as a client sends them back. */

export function functionCall(callId: string, name = 'f', more: Readonly<Record<string, unknown>> = {}) {
  return { type: 'function_call', call_id: callId, name, arguments: '{"a":1}', ...more }
}

export function functionOutput(callId: string, output: unknown) {
  return { type: 'function_call_output', call_id: callId, output }
}
