/** An app that talks to a model: an answer as it comes, stopping, going back. */

import { useState } from "react";
import { Button, SafeAreaView, ScrollView, Text, TextInput } from "react-native";
import { models, useLLMChatSession, type ChatMessage } from "react-native-pteron";

export default function App() {
  const llm = useLLMChatSession(models.llm.SMOLLM2_135M.DEFAULT, { generationConfig: { maxNewTokens: 200 } });
  const [question, setQuestion] = useState("");
  const [history, setHistory] = useState<readonly ChatMessage[]>([]);
  const [answer, setAnswer] = useState<string>();
  const [problem, setProblem] = useState<string>();

  async function ask() {
    const asked = question.trim();
    if (!asked || !llm.sendMessage) return;
    setQuestion("");
    setProblem(undefined);
    setAnswer("");
    try {
      await llm.sendMessage(asked, (token) => setAnswer((before) => (before ?? "") + token));
    } catch (error) {
      setProblem(String(error));
    }
    setAnswer(undefined);
    setHistory(llm.getHistory?.() ?? []);
  }

  if (!llm.isReady) {
    return (
      <SafeAreaView>
        <Text>{llm.error ? llm.error.message : `The model is being fetched: ${llm.downloadProgress.toFixed(0)} %`}</Text>
      </SafeAreaView>
    );
  }
  const isAnswering = answer !== undefined;
  return (
    <SafeAreaView style={{ flex: 1, padding: 16 }}>
      <ScrollView style={{ flex: 1 }}>
        {history.map((message, at) => (
          <Text key={at}>{`${message.role}: ${message.content ?? ""}`}</Text>
        ))}
        {isAnswering && <Text>{answer}</Text>}
        {problem && <Text accessibilityRole="alert">{problem}</Text>}
      </ScrollView>
      <TextInput value={question} onChangeText={setQuestion} editable={!isAnswering} placeholder="Ask something" />
      {isAnswering ? <Button title="Stop" onPress={() => llm.stop?.()} /> : <Button title="Ask" onPress={ask} />}
    </SafeAreaView>
  );
}
