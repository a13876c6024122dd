/** Names of tools that are there twice, or not at all: each dialect refuses them in the words of its own body. */
import t from 'tap'
import { inChatNames } from '../../src/dialects/chat-completions/paths.ts'
import type { Dialect } from '../../src/dialects/dialect.ts'
import { chatCompletions, gemini, messages, responsesDialect } from '../support/dialects.ts'

const said = (dialect: Pick<Dialect, 'parse'>, body: object): string => {
  try {
    dialect.parse({ model: 'acme/m', ...body })
  } catch (thrown) {
    return (thrown as Error).message.replace(/:.*$/s, '')
  }
  return 'nothing'
}

t.test('two tools of one name', async t => {
  const f = { type: 'function', name: 'f' }
  t.equal(said(responsesDialect, { input: 'Hi', tools: [f, f] }), 'tools[1].name')
  const chat = { messages: [{ role: 'user', content: 'Hi' }] }
  const chatTool = { type: 'function', function: { name: 'f' } }
  t.equal(said(chatCompletions, { ...chat, tools: [chatTool, chatTool] }), 'tools[1].function.name')
  const tool = { name: 'f', input_schema: { type: 'object' } }
  t.equal(said(messages, { ...chat, max_tokens: 9, tools: [tool, tool] }), 'tools[1].name')
  const contents = [{ role: 'user', parts: [{ text: 'Hi' }] }]
  const tools = [{ functionDeclarations: [{ name: 'f' }] }, { functionDeclarations: [{ name: 'f' }] }]
  t.equal(said(gemini, { contents, tools }), 'tools[1].functionDeclarations[0].name')
})

t.test('a choice of a tool that is not there', async t => {
  const input = { input: 'Hi', tools: [{ type: 'function', name: 'f' }] }
  t.equal(
    said(responsesDialect, { ...input, tool_choice: { type: 'function', name: 'g' } }),
    'tool_choice.name',
  )
  const chat = {
    messages: [{ role: 'user', content: 'Hi' }],
    tools: [{ type: 'function', function: { name: 'f' } }],
  }
  const chosen = { type: 'function', function: { name: 'g' } }
  t.equal(said(chatCompletions, { ...chat, tool_choice: chosen }), 'tool_choice.function.name')
  const allowed = { type: 'allowed_tools', allowed_tools: { mode: 'auto', tools: [chosen] } }
  t.equal(
    said(chatCompletions, { ...chat, tool_choice: allowed }),
    'tool_choice.allowed_tools.tools[0].function.name',
  )
  const message = {
    messages: chat.messages,
    max_tokens: 9,
    tools: [{ name: 'f', input_schema: { type: 'object' } }],
  }
  t.equal(said(messages, { ...message, tool_choice: { type: 'tool', name: 'g' } }), 'tool_choice.name')
  t.equal(said(messages, { ...message, tool_choice: { type: 'tool', name: 'f' } }), 'nothing')
  const contents = [{ role: 'user', parts: [{ text: 'Hi' }] }]
  const tools = [{ functionDeclarations: [{ name: 'f' }] }]
  const choice = (...allowedFunctionNames: string[]) => ({
    contents,
    tools,
    toolConfig: { functionCallingConfig: { mode: 'ANY', allowedFunctionNames } },
  })
  const path = 'toolConfig.functionCallingConfig.allowedFunctionNames'
  t.equal(said(gemini, choice('g')), `${path}[0]`)
  t.equal(said(gemini, choice('f', 'g')), `${path}[1]`)
  t.equal(said(gemini, choice('f')), 'nothing')
})

t.test('a limit and an effort are named as the client wrote them', async t => {
  const chat = { model: 'acme/m', messages: [{ role: 'user', content: 'Hi' }] }
  const named = (fields: object, field: string) =>
    inChatNames(`${field}: is wrong`, chatCompletions.parse({ ...chat, ...fields }))
  t.equal(named({ max_tokens: 9 }, 'max_output_tokens'), 'max_tokens: is wrong')
  t.equal(named({ max_completion_tokens: 9 }, 'max_output_tokens'), 'max_completion_tokens: is wrong')
  t.equal(named({ reasoning_effort: 'low' }, 'reasoning.effort'), 'reasoning_effort: is wrong')
  t.equal(named({ reasoning: { effort: 'low' } }, 'reasoning.effort'), 'reasoning.effort: is wrong')
})
