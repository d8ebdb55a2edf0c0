// A status line at the bottom of the terminal, below which nothing scrolls: the training program
// keeps the rest of the screen, and its output is never mixed with ours. Where standard error is
// no terminal, nothing is written.
// Threading: one thread.
#ifndef CLIENT_TEXT_PROGRESS_H_
#define CLIENT_TEXT_PROGRESS_H_

#include <string>

namespace seqpoint::client {

class Progress {
 public:
  // `wanted` false: never shows anything.
  explicit Progress(bool wanted);
  ~Progress() { Hide(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  bool visible() const { return rows_ > 0; }
  int width() const { return columns_; }
  // Takes the last line of the terminal. Also after its size changed.
  void Show();
  void Draw(const std::string& text);
  // Gives the line back.
  void Hide();

 private:
  bool possible_;
  int rows_ = 0;  // 0: not shown
  int columns_ = 0;
};

// Columns of the terminal on `fd`; 0 when it is none.
int TerminalWidth(int fd);

}  // namespace seqpoint::client

#endif  // CLIENT_TEXT_PROGRESS_H_
