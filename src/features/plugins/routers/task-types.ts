/** The task types that routers assign to prompts. Pure. */
export const TASK_TYPES = [
  'agent:multi_step_planning',
  'agent:tool_use',
  'chat',
  'classification',
  'code:debugging',
  'code:devops',
  'code:explanation',
  'code:generation',
  'code:refactoring',
  'code:review',
  'code:sql',
  'code:testing',
  'creative_writing',
  'customer_support',
  'data_analysis',
  'data_extraction',
  'editing',
  'email',
  'finance',
  'legal',
  'logic',
  'marketing_copy',
  'math',
  'medical',
  'qa_document',
  'qa_knowledge',
  'research_report',
  'roleplay',
  'summarization',
  'translation',
] as const
export type TaskType = (typeof TASK_TYPES)[number]

const KNOWN_TYPES: ReadonlySet<string> = new Set(TASK_TYPES)

export function isTaskType(name: unknown): name is TaskType {
  return typeof name === 'string' && KNOWN_TYPES.has(name)
}
